"""Files: left with the vendor first, then sent by their id."""

from __future__ import annotations

import hashlib
import socket
from typing import Any

import httpx
import pytest

from cerniq_pipeline.sandbox.files import parts_of
from cerniq_pipeline_tests.sandbox.running import RunningSandbox

PHONE = "+40731000001"
LEAD = "+40722123456"
API = "/integrations/api"
MEBIBYTE = 1024 * 1024
PHOTO = b"\xff\xd8\r\n--not the boundary\r\n\r\n\x00 photo"


def upload(
    sandbox: RunningSandbox,
    content: bytes = PHOTO,
    *,
    filename: str = "poză.jpg",
    mimetype: str = "image/jpeg",
) -> httpx.Response:
    files = {"file": (filename, content, mimetype)}
    return sandbox.client.post(f"{API}/files_upload", files=files)


def send(sandbox: RunningSandbox, **fields: object) -> httpx.Response:
    body = {"phone": LEAD, "whatsapp_account_phone": PHONE, **fields}
    return sandbox.client.post(f"{API}/messages", json=body)


def message(sandbox: RunningSandbox, answer: httpx.Response) -> dict[str, Any]:
    uid = answer.raise_for_status().json()["data"]["message_uid"]
    return sandbox.client.get(f"{API}/messages/{uid}").json()["data"]


def test_an_upload_gets_an_id_and_a_line_in_the_journal(sandbox: RunningSandbox):
    told = upload(sandbox).raise_for_status().json()["data"]
    assert told.pop("temporary_download_url").startswith("https://")
    assert told == {
        "uid": told["uid"],
        "filename": "poză.jpg",
        "size": len(PHOTO),
        "mimetype": "image/jpeg",
    }
    (line,) = sandbox.uploads()
    assert (line["provider"], line["dialect"]) == ("timelinesai", "public")
    assert line["attachment"] == {**told, "sha256": hashlib.sha256(PHOTO).hexdigest()}
    assert sandbox.journal() == [line]


def test_an_upload_can_say_what_the_file_is_called(sandbox: RunningSandbox):
    words = {"filename": (None, "oferta.pdf"), "content_type": (None, "application/pdf")}
    files = {"file": ("x", PHOTO, "image/jpeg"), **words}
    told = sandbox.client.post(f"{API}/files_upload", files=files).json()["data"]
    assert (told["filename"], told["mimetype"]) == ("oferta.pdf", "application/pdf")


def test_a_link_is_taken_but_not_followed(sandbox: RunningSandbox):
    body = {"download_url": "https://exemplu.test/a/oferta%20ta.pdf?v=1"}
    told = sandbox.client.post(f"{API}/files", json=body).raise_for_status().json()["data"]
    assert (told["filename"], told["mimetype"], told["size"]) == (
        "oferta ta.pdf",
        "application/pdf",
        0,
    )
    again = sandbox.client.post(f"{API}/files", json=body).json()["data"]
    assert again["uid"] != told["uid"]
    assert [line["attachment"]["source_url"] for line in sandbox.uploads()] == [
        body["download_url"]
    ] * 2


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "download_url"), ({"url": "https://x.test/a"}, "download_url")]
    + [({"download_url": url}, "download_url") for url in ("", "nu", "ftp://x.test/a", "http://[")],
)
def test_a_bad_link_is_refused(sandbox: RunningSandbox, body: dict[str, str], field: str):
    answer = sandbox.client.post(f"{API}/files", json=body)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["fields"] == [field]
    assert sandbox.uploads() == []


def test_an_upload_without_a_file_is_refused(sandbox: RunningSandbox):
    for wrong in (
        sandbox.client.post(f"{API}/files_upload", json={"file": "x"}),
        sandbox.client.post(f"{API}/files_upload", files={"document": ("a.pdf", b"x")}),
    ):
        assert wrong.status_code == 400
        assert wrong.json()["errors"][0]["fields"] == ["file"]
    assert sandbox.uploads() == []


def test_a_file_is_sent_with_or_without_words(sandbox: RunningSandbox):
    uid = upload(sandbox).json()["data"]["uid"]
    told = message(sandbox, send(sandbox, file_uid=uid, text="Oferta"))
    assert (told["text"], told["has_attachment"], told["attachment_filename"]) == (
        "Oferta",
        True,
        "poză.jpg",
    )
    alone = message(sandbox, send(sandbox, file_uid=uid))
    assert (alone["text"], alone["has_attachment"]) == ("", True)
    first, second = sandbox.accepted()
    assert first["attachment"] == second["attachment"] == sandbox.uploads()[0]["attachment"]
    assert (first["text"], second["text"]) == ("Oferta", "")


def test_a_file_goes_into_a_chat_too(sandbox: RunningSandbox):
    uid = upload(sandbox).json()["data"]["uid"]
    send(sandbox, text="Bună")
    chat_id = sandbox.accepted()[0]["chat_id"]
    answer = sandbox.client.post(f"{API}/chats/{chat_id}/messages", json={"file_uid": uid})
    assert message(sandbox, answer)["has_attachment"] is True
    assert sandbox.accepted()[-1]["kind"] == "chat_message"


def test_a_message_without_a_file_says_so_in_the_journal(sandbox: RunningSandbox):
    send(sandbox, text="Bună")
    assert sandbox.accepted()[0]["attachment"] is None


def test_an_unknown_file_is_refused(sandbox: RunningSandbox):
    answer = send(sandbox, text="Bună", file_uid="nu-i")
    assert (answer.status_code, answer.json()["message"]) == (400, "Attachment nu-i not found")
    assert sandbox.accepted() == []


@pytest.mark.parametrize(
    ("mimetype", "status"),
    [("image/jpeg", 413), ("video/mp4", 413), ("audio/ogg", 413), ("application/pdf", 200)],
)
def test_media_have_a_smaller_limit_than_documents(
    sandbox: RunningSandbox, mimetype: str, status: int
):
    content = bytes(16 * MEBIBYTE + 1)
    answer = upload(sandbox, content, filename="f", mimetype=mimetype)
    assert answer.status_code == status
    assert len(sandbox.uploads()) == (status == 200)


def test_only_uploads_may_be_longer_than_other_bodies(sandbox: RunningSandbox):
    content = bytes(33 * MEBIBYTE)
    assert upload(sandbox, content, filename="f", mimetype="application/pdf").status_code == 200
    url = f"{sandbox.public_url}/messages"
    assert httpx.post(url, content=content, trust_env=False).status_code == 413


def test_a_document_over_its_limit_is_refused_before_it_is_read(sandbox: RunningSandbox):
    head = (
        f"POST {API}/files_upload HTTP/1.1\r\nhost: x\r\ncontent-length: {102 * MEBIBYTE}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=5) as plain:
        plain.sendall(head.encode())
        assert plain.recv(1024).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("fault", "status", "kept"),
    [
        ({"kind": "server_error"}, 500, 0),
        ({"kind": "server_error", "accepted": True}, 500, 1),
        ({"kind": "refuse", "status": 413, "code": "file_too_large"}, 413, 0),
        ({"kind": "rate_limited"}, 429, 0),
    ],
)
def test_an_upload_can_fail(sandbox: RunningSandbox, fault: dict[str, Any], status: int, kept: int):
    sandbox.fault(operation="upload", **fault)
    assert upload(sandbox).status_code == status
    assert len(sandbox.uploads()) == kept
    assert send(sandbox, text="Bună").status_code == 200


def test_an_upload_can_end_in_a_cut(sandbox: RunningSandbox):
    sandbox.fault("cut_before_accept", operation="upload", times=1)
    with pytest.raises(httpx.TransportError):
        upload(sandbox)
    assert sandbox.uploads() == []
    sandbox.fault("accept_then_cut", operation="upload", times=1)
    with pytest.raises(httpx.TransportError):
        upload(sandbox)
    assert len(sandbox.uploads()) == 1


def test_the_same_file_twice_to_one_person_is_a_duplicate(sandbox: RunningSandbox):
    for content in (b"unu", b"doi"):
        uid = upload(sandbox, content).json()["data"]["uid"]
        send(sandbox, file_uid=uid)
    assert sandbox.duplicates() == []
    send(sandbox, file_uid=upload(sandbox, b"unu").json()["data"]["uid"])
    assert len(sandbox.duplicates()) == 1


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("", b"--x\r\n\r\n--x--"),
        ("multipart/form-data", b"--x--"),
        ("multipart/form-data; boundary=x", b""),
        ("multipart/form-data; boundary=x", b'--x\r\ncontent-disposition: form-data; name="a"'),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\ncontent\r\n--x--"),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\nhalf',
        ),
        (
            "multipart/form-data; boundary=x",
            b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\n1\r\n--x\r\nhalf',
        ),
    ],
)
def test_a_torn_multipart_body_is_no_upload(content_type: str, body: bytes):
    assert parts_of({"content-type": content_type}, body) is None


# --- the documents' dialect ----------------------------------------------------------------------


def test_the_documents_dialect_sends_media_by_a_link(sandbox: RunningSandbox):
    send(sandbox, text="Bună")
    chat_id = sandbox.accepted()[0]["chat_id"]
    media = {"media_type": "image", "media_url": "https://exemplu.test/poza.jpg"}
    body = {"chat_id": chat_id, **media, "caption": "Oferta"}
    answer = sandbox.client.post("/v1/messages/send-media", json=body)
    line = sandbox.accepted()[-1]
    assert answer.json()["message_id"] == line["message_uid"]
    assert (line["kind"], line["dialect"], line["text"]) == ("chat_message", "v1", "Oferta")
    assert (line["attachment"]["source_url"], line["attachment"]["mimetype"]) == (
        media["media_url"],
        "image/jpeg",
    )
    alone = {"chat_id": chat_id, **media}
    assert sandbox.client.post("/v1/messages/send-media", json=alone).status_code == 200
    assert sandbox.accepted()[-1]["text"] == ""


@pytest.mark.parametrize(
    ("change", "status"),
    [({"media_url": None}, 400), ({"media_url": "poza"}, 400), ({"chat_id": 7}, 404)],
)
def test_the_documents_dialect_refuses_media_without_a_link_or_a_chat(
    sandbox: RunningSandbox, change: dict[str, object], status: int
):
    send(sandbox, text="Bună")
    body = {"chat_id": sandbox.accepted()[0]["chat_id"], "media_url": "https://x.test/a.jpg"}
    answer = sandbox.client.post("/v1/messages/send-media", json={**body, **change})
    assert answer.status_code == status
    assert len(sandbox.accepted()) == 1
