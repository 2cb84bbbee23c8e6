from .api import Generation, calculate_kv, generate_with_kv, get_kv, store_kv
from .calibration import cached_profile, calibrate
from .calibration_texts import calibration_texts
from .chunking import DEFAULT_CHUNK_TOKENS
from .container import ChunkIdentity
from .controllers import (
    CONTROLLERS,
    ChunkOptions,
    Controller,
    Decision,
    FixedController,
    LinkForecast,
    MeetController,
    make_controller,
)
from .default_model import DEFAULT_MODEL_NAME, default_model_path
from .encoding import ENCODINGS, Encoding, parse_encoding
from .errors import (
    AdmissionError,
    CachegenError,
    ChecksumError,
    FormatError,
    InvalidInputError,
    MemoryLimitError,
    MismatchError,
    NonFiniteError,
    ObjectNotFoundError,
    QualityError,
    StoreError,
    StoreUnavailableError,
    UnknownNameError,
    UnsupportedModelError,
    VersionError,
)
from .estimators import ESTIMATORS, ThroughputEstimator, make_estimator
from .held_out import HeldOutRow, check_held_out, require_quality
from .kv import KVShape
from .kv_cache import KVCache
from .last_chunk import EarlyObject
from .link_use import LinkKnowledge
from .load_commands import CancelFetch, EventLog, Fetch, LoadLimits, Prefill
from .load_costs import LoadCosts
from .load_host import LoadHost
from .load_session import LoadSession
from .loader import ContextLoader, LoadedContext
from .manifest import Manifest, ManifestChunk
from .measure import measure_recompute
from .model import LanguageModel, load_model
from .pipeline import DecodedChunk, decode_chunk, encode_chunk, warm_up
from .profile import Profile, load_profile, save_profile
from .profile_builder import ProfileBuilder
from .profile_cache import find_profile
from .provenance import describe_environment
from .quality import Quality, compare_logits
from .recompute_cost import RecomputeCost
from .sharing import SHARING, HostLimits, SharedHost, make_sharing
from .sources import HttpSource, Source, StoreSource, open_source
from .stage_clock import Stage, StageClock
from .stores import Store, open_store

__all__ = [
    "CONTROLLERS",
    "DEFAULT_CHUNK_TOKENS",
    "DEFAULT_MODEL_NAME",
    "ENCODINGS",
    "ESTIMATORS",
    "SHARING",
    "AdmissionError",
    "CachegenError",
    "CancelFetch",
    "ChecksumError",
    "ChunkIdentity",
    "ChunkOptions",
    "ContextLoader",
    "Controller",
    "Decision",
    "DecodedChunk",
    "EarlyObject",
    "Encoding",
    "EventLog",
    "Fetch",
    "FixedController",
    "FormatError",
    "Generation",
    "HeldOutRow",
    "HostLimits",
    "HttpSource",
    "InvalidInputError",
    "KVCache",
    "KVShape",
    "LanguageModel",
    "LinkForecast",
    "LinkKnowledge",
    "LoadCosts",
    "LoadHost",
    "LoadLimits",
    "LoadSession",
    "LoadedContext",
    "Manifest",
    "ManifestChunk",
    "MeetController",
    "MemoryLimitError",
    "MismatchError",
    "NonFiniteError",
    "ObjectNotFoundError",
    "Prefill",
    "Profile",
    "ProfileBuilder",
    "Quality",
    "QualityError",
    "RecomputeCost",
    "SharedHost",
    "Source",
    "Stage",
    "StageClock",
    "Store",
    "StoreError",
    "StoreSource",
    "StoreUnavailableError",
    "ThroughputEstimator",
    "UnknownNameError",
    "UnsupportedModelError",
    "VersionError",
    "cached_profile",
    "calculate_kv",
    "calibrate",
    "calibration_texts",
    "check_held_out",
    "compare_logits",
    "decode_chunk",
    "default_model_path",
    "describe_environment",
    "encode_chunk",
    "find_profile",
    "generate_with_kv",
    "get_kv",
    "load_model",
    "load_profile",
    "make_controller",
    "make_estimator",
    "make_sharing",
    "measure_recompute",
    "open_source",
    "open_store",
    "parse_encoding",
    "require_quality",
    "save_profile",
    "store_kv",
    "warm_up",
]
