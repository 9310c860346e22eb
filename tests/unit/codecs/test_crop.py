"""The codec drystone.crop, as zarr runs it: reads, writes, refusals, and how zarr finds it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.registry import register_codec

from drystone.codecs.crop import CropCodec

REPO = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def codec() -> None:
    """An editable install made before the codec was there has no entry point for it."""
    register_codec("drystone.crop", CropCodec)


@pytest.mark.parametrize("pipeline", ["BatchedCodecPipeline", "FusedCodecPipeline"])
@pytest.mark.parametrize("fill", [0, -1])
def test_what_is_written_is_read(pipeline: str, fill: int) -> None:
    values = np.arange(1, 36, dtype="i4").reshape(7, 5)
    with zarr.config.set({"codec_pipeline.path": f"zarr.core.codec_pipeline.{pipeline}"}):
        store = zarr.storage.MemoryStore()
        a = zarr.create_array(
            store, name="v", shape=(7, 5), chunks=(2, 5), dtype="i4", filters=[CropCodec(block=(3, 4))], compressors=None,
            fill_value=fill,
        )  # fmt: skip
        a[:] = values
        a[1:4, 2] = 0
        values[1:4, 2] = 0
        again = zarr.open_array(store, path="v", mode="r")
        np.testing.assert_array_equal(again[:], values)
        np.testing.assert_array_equal(again[1:6:2, 3], values[1:6:2, 3])
    block = np.frombuffer(
        zarr.core.sync.sync(store.get("v/c/0/0", zarr.core.buffer.default_buffer_prototype())).to_bytes(), "<i4"
    )
    assert block.size == 3 * 8
    assert (block.reshape(3, 8)[2] == fill).all()
    assert (block.reshape(3, 8)[:, 5:] == fill).all()


@pytest.mark.parametrize("block", [(0, 1), (-3, 4), (2.5, 1), (True, 1)])
def test_a_block_that_is_none_is_refused(block: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        CropCodec(block=block)


def test_another_rank_is_refused() -> None:
    with pytest.raises(ValueError, match="1 axes, the array 2"):
        zarr.create_array({}, shape=(4, 4), chunks=(2, 2), dtype="i4", filters=[CropCodec(block=(3,))])


def test_a_block_of_too_few_bytes_fails_loudly() -> None:
    store = zarr.storage.MemoryStore()
    zarr.create_array(store, name="v", shape=(4,), chunks=(4,), dtype="i4", filters=[CropCodec(block=(6,))], compressors=None)
    five = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(bytes(20))
    zarr.core.sync.sync(store.set("v/c/0", five))
    with pytest.raises(ValueError, match="reshape"):
        zarr.open_array(store, path="v", mode="r")[:]


def test_zarr_finds_it_by_its_entry_point_alone(tmp_path: Path) -> None:
    """In a process that imports zarr and nothing of drystone, with the entry point that this project declares."""
    points = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["entry-points"]["zarr.codecs"]
    assert list(points) == ["drystone.crop"]
    info = tmp_path / "pointed-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pointed\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[zarr.codecs]\ndrystone.crop = {points['drystone.crop']}\n")
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(REPO / 'src')!r}]\n"
        "import zarr, json\n"
        "codec = {'name': 'drystone.crop', 'configuration': {'block': [6]}}\n"
        "assert not any(m.startswith('drystone') for m in sys.modules)\n"
        "print(type(zarr.registry.get_codec_class('drystone.crop').from_dict(codec)).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "CropCodec", done.stderr
