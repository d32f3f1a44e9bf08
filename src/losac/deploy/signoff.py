"""``python -m losac.deploy.signoff``: tell a SuperLink that a SuperNode is gone.

A SuperNode that was killed counts as online until it has missed its heartbeats, and its successor is refused until
then, up to a minute. The holder of its key may sign off for it. Flower does so itself when a SuperNode ends normally,
but has no command for it; if this fails, one can only wait.
"""

from __future__ import annotations

import sys
from pathlib import Path

from losac.deploy.errors import DeployError


def sign_off(superlink_address: str, authority: Path, private_key: Path, node_id: int) -> None:
    """Make the SuperLink count a SuperNode as offline."""
    import httpx
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest
    from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
    from flwr.supercore.protobuf.client import ProtobufClientInterceptor
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    key = load_ssh_private_key(private_key.read_bytes(), password=None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError(f"{private_key} is no elliptic-curve key; make one with losac.deploy.certificates.node_key")
    signing: list[ProtobufClientInterceptor] = [
        RuntimeVersionHttpInterceptor(component_name="SuperNode"),
        NodeAuthHttpInterceptor(key, key.public_key()),
    ]
    try:
        with FleetHttpClient.from_server_address(
            superlink_address, False, str(authority), interceptors=signing
        ) as fleet:
            fleet.DeactivateNode(DeactivateNodeRequest(node_id=node_id))
    except httpx.HTTPError as error:
        raise DeployError(
            f"the SuperLink at {superlink_address} did not take node {node_id}'s leave: {error}"
        ) from None


if __name__ == "__main__":
    sign_off(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
