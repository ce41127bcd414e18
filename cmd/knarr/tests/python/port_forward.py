"""Asks a pod for its page over a forwarded port, as the Python client carries it: channels of a WebSocket, no SPDY.

usage: port_forward.py NAMESPACE POD PORT
"""

import sys

from kubernetes import client, config
from kubernetes.stream import portforward

namespace, pod, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
config.load_kube_config()
ask = client.CoreV1Api().connect_get_namespaced_pod_portforward
forward = portforward(ask, pod, namespace, ports=str(port))
page = forward.socket(port)
page.setblocking(True)
answer = b""
try:
    page.sendall(b"GET / HTTP/1.0\r\nHost: web\r\n\r\n")
    while piece := page.recv(4096):
        answer += piece
except OSError:
    # The client library closes its end as soon as it has heard an error, which is asked for below.
    pass
print(answer.decode())
if forward.error(port):
    sys.exit(forward.error(port))
