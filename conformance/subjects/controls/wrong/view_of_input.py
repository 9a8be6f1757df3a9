"""Hands back a view of its input."""


def unpack_payload(payload):
    """Slice the payload without a copy."""
    k = payload.shape[1] * 32 // 17
    return payload[:, : k // 2], payload[:, k // 2 :]


SUBJECT = {"operations": {"unpack_payload": unpack_payload}}
FINDING = "output-aliases-input"
