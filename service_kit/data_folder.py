"""The folder that a service keeps its data in: whose it is, and the key that embedded tokens are signed with.

Invariants: one process serves a folder at a time, for each service its own lock (settled 33); the signing
key is made once, whole, and readable by its owner alone.
"""

import fcntl
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from service_kit.errors import SetupProblem


@dataclass(frozen=True, slots=True)
class FolderLock:
    """The hold of this process on a data folder. The system ends it with the process, however that ends."""

    descriptor: int

    def release(self) -> None:
        """Let others serve the folder."""
        os.close(self.descriptor)


class DataFolder:
    """A service's data folder. Makes it where there is none, for its owner alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise SetupProblem(f"The data folder {path} cannot be made: {problem.strerror}.") from None

    def lock(self, service: str) -> FolderLock:
        """Take the folder for one service, until the process ends or lets go.

        Raises `SetupProblem` where another process has it.
        """
        descriptor = os.open(self.path / f"{service}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise SetupProblem(
                f"Another process serves the data folder {self.path} ({service}). Stop it, or set another folder."
            ) from None
        return FolderLock(descriptor)

    def signing_key(self) -> Ed25519PrivateKey:
        """Load the key, or make it. Of several processes that make it at once, all get the first one's."""
        path = self.path / "signing-key.pem"
        if not path.exists():
            self._make_key(path)
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as problem:
            raise SetupProblem(f"The signing key {path} cannot be read: {problem}") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise SetupProblem(f"The signing key {path} is not an Ed25519 key.")
        return key

    def _make_key(self, path: Path) -> None:
        pem = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(pem)
                file.flush()
                os.fsync(descriptor)
            # A link, not a rename: it fails where somebody else was first.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
