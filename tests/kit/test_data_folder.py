"""The data folder: one process a service, one key."""

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service_kit.data_folder import DataFolder
from service_kit.errors import SetupProblem

HOLDER = """
import sys
from pathlib import Path
from service_kit.data_folder import DataFolder
DataFolder(Path(sys.argv[1])).lock("runtime")
print("held", flush=True)
sys.stdin.read()
"""

KEY_MAKER = """
import sys
from pathlib import Path
from service_kit.data_folder import DataFolder
sys.stdin.readline()
print(DataFolder(Path(sys.argv[1])).signing_key().private_bytes_raw().hex())
"""


def run(program: str, folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_new_folder_is_its_owners_alone(tmp_path: Path) -> None:
    DataFolder(tmp_path / "a" / "data")

    assert stat.S_IMODE((tmp_path / "a" / "data").stat().st_mode) == 0o700


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    """It may be anybody's: only what we put into it is ours to lock away."""
    tmp_path.chmod(0o755)
    DataFolder(tmp_path).signing_key()

    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "signing-key.pem").stat().st_mode) == 0o600


def test_another_process_cannot_serve_the_same_folder(tmp_path: Path) -> None:
    """R6.1; and a killed process leaves no lock behind."""
    folder = DataFolder(tmp_path)
    with run(HOLDER, tmp_path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "held"
        with pytest.raises(SetupProblem, match="Another process serves the data folder"):
            folder.lock("runtime")
        folder.lock("teaching").release()
        holder.kill()
        holder.wait()
        folder.lock("runtime").release()


def test_a_lock_that_was_let_go_can_be_taken_again(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    held = folder.lock("runtime")
    with pytest.raises(SetupProblem):
        DataFolder(tmp_path).lock("runtime")
    held.release()

    folder.lock("runtime").release()


def test_the_key_stays_the_same(tmp_path: Path) -> None:
    first = DataFolder(tmp_path).signing_key()

    assert first.private_bytes_raw() == DataFolder(tmp_path).signing_key().private_bytes_raw()


def test_processes_that_make_the_key_at_once_get_one_key(tmp_path: Path) -> None:
    makers = [run(KEY_MAKER, tmp_path) for _ in range(4)]

    with ThreadPoolExecutor() as pool:
        made = set(pool.map(lambda maker: maker.communicate("go\n", timeout=60)[0], makers))

    assert len(made) == 1
    assert len(made.pop()) == 65
    assert [path.name for path in tmp_path.iterdir()] == ["signing-key.pem"]


@pytest.mark.parametrize("text", [b"", b"no key"])
def test_a_key_that_cannot_be_read_is_a_problem_of_the_set_up(text: bytes, tmp_path: Path) -> None:
    """It is never made anew: every token out there would end."""
    (tmp_path / "signing-key.pem").write_bytes(text)

    with pytest.raises(SetupProblem, match="cannot be read"):
        DataFolder(tmp_path).signing_key()
