"""Compiles the CPU kernels into wheels, one library per instruction set; an editable install compiles at first use."""

import importlib.util
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Kernels(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        build = self._build()
        self.folder = tempfile.TemporaryDirectory()
        try:
            for isa in build.isas():
                library = build.compile_into(Path(self.folder.name), isa)
                build_data["force_include"][str(library)] = f"longwave/ops/native/lib/{library.name}"
        except build.NoLibraryError as why:
            sys.stderr.write(f"longwave: this wheel carries no native kernels: {why}\n")
            build_data["force_include"] = {}
            return
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def _build(self) -> Any:
        """`build.py` by its path: torch, which the package imports, is not there while it is built."""
        path = Path(self.root) / "src" / "longwave" / "ops" / "native" / "build.py"
        spec = importlib.util.spec_from_file_location("longwave_native_build", path)
        assert spec and spec.loader
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        return build
