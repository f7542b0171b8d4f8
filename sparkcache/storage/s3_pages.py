"""Pages of listings in S3: the objects on them, which is most of what listing costs.

boto3 takes 80 ms of a processor for a page of 1,000 objects. Most of that goes into
fields that nobody reads, so the objects are taken out of a page before boto3 parses the
rest. Then a page takes 20 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_plus
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_s3.client import S3Client

_OBJECTS = "Objects"
_HTTP_OK = 200


class Listed(NamedTuple):
    """An object on a page.

    Attributes:
        key: Its key in the bucket.
        size_bytes: Its length.
        etag: Its ETag, without quotes.

    """

    key: str
    size_bytes: int
    etag: str


def parse_objects(client: S3Client) -> None:
    """Have a client parse the objects of pages here; see `objects`."""
    client.meta.events.register("before-parse.s3.ListObjectsV2", _take_objects)


def objects(page: Any) -> list[Listed]:  # noqa: ANN401 - a page with a key of ours
    """Return the objects of a page that such a client has returned, in their order."""
    listed: list[Listed] = page.get(_OBJECTS, [])
    return listed


def _take_objects(
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_: object,
) -> None:
    """Move the objects of a response from its body into the page."""
    if response_dict["status_code"] != _HTTP_OK:
        return
    try:
        root = ElementTree.fromstring(response_dict["body"])  # noqa: S314 - as boto3
    except ElementTree.ParseError:
        return  # boto3 reports it
    namespace = root.tag.partition("}")[0] + "}" if root.tag[:1] == "{" else ""
    is_encoded = root.findtext(f"{namespace}EncodingType") == "url"
    found = root.findall(f"{namespace}Contents")
    customized_response_dict[_OBJECTS] = list(_listed(found, namespace, is_encoded))
    root[:] = [element for element in root if element.tag != f"{namespace}Contents"]
    response_dict["body"] = ElementTree.tostring(root)


def _listed(
    found: Iterable[ElementTree.Element], namespace: str, is_encoded: bool
) -> Iterable[Listed]:
    names = f"{namespace}Key", f"{namespace}Size", f"{namespace}ETag"
    for element in found:
        key, size, etag = (element.findtext(name) or "" for name in names)
        key = unquote_plus(key) if is_encoded else key
        yield Listed(key, int(size), etag.strip('"'))
