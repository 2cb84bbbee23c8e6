"""The storage server: gives out the objects of a file store over HTTP, whole or by byte range.

``GET`` and ``HEAD`` of ``/v1/objects/<name>`` answer with the object, by ``sendfile``, with ETag and ranges.
They answer 400 to what is no object name, 404 where there is no object, 416 to a range outside of it, 503 where the
disk fails. ``/healthz`` says that the server is alive, ``/readyz`` whether its folder can be read, ``/metrics`` what it
has done. Clients write nothing, and there are no request bodies; the server itself records which contexts are used,
where its folder can be written to. TCP's congestion control is left as the machine has it.

``docs/server.md`` has the limits and how to run it where others can reach it.
"""
