"""Runs a program as a job through REST and prints what its workers print (needs httpx).

URL=https://... CA=ca.crt TOKEN=... python follow.py train.py
"""

import json
import os
import pathlib
import ssl
import sys
import uuid

import httpx

headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}
tls = ssl.create_default_context(cafile=os.environ["CA"])
with httpx.Client(base_url=os.environ["URL"], headers=headers, verify=tls, timeout=60) as rest:
    body = {"framework": "pytorch", "code": pathlib.Path(sys.argv[1]).read_text(), "config": {"num_nodes": 2}}
    job = rest.post("/api/v1/jobs", json=body, headers={"Idempotency-Key": str(uuid.uuid4())}).raise_for_status().json()
    url, seen = f"/api/v1/jobs/{job['name']}", {"id": "", "event": ""}
    while seen["event"] != "end":  # a broken connection goes on where it broke
        with rest.stream("GET", f"{url}/logs/stream", headers={"Last-Event-ID": seen["id"]}) as stream:
            for line in stream.iter_lines():
                name, _, seen[name] = line.partition(": ")
                for entry in json.loads(seen[name]).get("lines", ()) if name == "data" else ():
                    print(entry["worker"], entry["text"])
    print(rest.get(url).json()["state"])
