"""An object store for tests: moto's S3, on this machine."""

import contextlib
import itertools
import logging

import pytest

#: What a client needs beside the URI. Moto asks nobody who he is.
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "s3cr3t", "AWS_EC2_METADATA_DISABLED": "true"}
_numbers = itertools.count()


class Store:
    """A bucket; `query` is the part of its URIs that says where it is."""

    def __init__(self, port):
        from pyarrow import fs

        self.query = f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
        self.bucket = f"bucket-{next(_numbers)}"
        self.system, _ = fs.FileSystem.from_uri(f"s3://{self.bucket}{self.query}&allow_bucket_creation=true")
        self.system.create_dir(self.bucket)

    def uri(self, name):
        return f"s3://{self.bucket}/{name}{self.query}"

    def names(self, folder):
        from pyarrow import fs

        found = self.system.get_file_info(fs.FileSelector(f"{self.bucket}/{folder}", allow_not_found=True))
        return sorted(info.base_name for info in found)

    def put(self, name, data):
        with self.system.open_output_stream(f"{self.bucket}/{name}", compression=None) as stream:
            stream.write(data)


@contextlib.contextmanager
def object_store():
    pytest.importorskip("pyarrow")
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger("werkzeug"), "disabled", True)
        for name, value in KEYS.items():
            patch.setenv(name, value)
        server.start()
        try:
            yield Store(server.get_host_and_port()[1])
        finally:
            server.stop()
