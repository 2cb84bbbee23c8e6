# The network testbed with all it needs, set up by its own set-up script:
#   docker build -f docker/testbed.Dockerfile -t cachegen:testbed .
#   docker run --rm --network none --cap-add NET_ADMIN --cap-add SYS_ADMIN -v "$PWD/runs:/cachegen/runs" cachegen:testbed --trace lte
# SYS_ADMIN makes the namespaces of a run and mounts /sys and /proc in them; NET_ADMIN makes their links. Where the host
# has AppArmor, add --security-opt apparmor=unconfined: its profile for containers refuses these mounts.
ARG BASE=python:3.11.13-slim-bookworm
FROM ${BASE}

# as in cpu.Dockerfile
ARG PIP_EXTRA_INDEX_URL=
# root: without it a container may not make namespaces, whatever its capabilities
WORKDIR /cachegen
COPY pyproject.toml README.md LICENSE Makefile ./
COPY cachegen cachegen
COPY testbed testbed
COPY bench bench
COPY traces traces
RUN python3 testbed/bootstrap.py \
 && rm -rf /var/lib/apt/lists/* /root/.cache/pip
VOLUME ["/cachegen/runs"]
ENTRYPOINT ["python3", "testbed/run.py"]
CMD ["--trace", "lte"]
