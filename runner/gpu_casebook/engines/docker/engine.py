"""Trials in containers, here or on the machine that DOCKER_HOST names: nothing is mounted from the client."""

import hashlib
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from failure_signature.result import CASE_DIRECTORY, TrialResult
from gpu_casebook.daemon import client as daemon
from gpu_casebook.daemon.client import LABEL, APIError, Container, DockerClient, speaking
from gpu_casebook.devices import hardware
from gpu_casebook.devices.driver import HostFacts, host_facts
from gpu_casebook.engines.base import Engine, Packed, Prepared
from gpu_casebook.engines.docker import made, options, packing
from gpu_casebook.engines.docker.access import choose_gpu_access
from gpu_casebook.engines.docker.options import Part
from gpu_casebook.engines.docker.payload import archive_of
from gpu_casebook.engines.docker.running import ContainerOutput, Looker, let_run, state_of, watching_tools
from gpu_casebook.engines.owner import Owner
from gpu_casebook.errors import EngineError, MachineError, UsageError
from gpu_casebook.evidence import ImageFacts
from gpu_casebook.images import build, override
from gpu_casebook.trial import GpuAccess, Note, Recipe, TrialRequest

# How long the engine may take to report the end of a container whose processes have ended.
_GRACE_S = 30.0
_LOOK_GRACE_S = 2.0


class DockerEngine(Engine):
    """`root` is the checkout, which has the images' Dockerfiles."""

    name = "docker"
    isolation = (
        "each trial in a container of its own, from an image that trials can't change",
        "no network",
        "all capabilities dropped, no new privileges, a user that is not root",
        "read-only root, scratch space in memory",
        "limits on memory, processes, time and output",
    )
    has_images = True
    takes_over = True

    def __init__(self, client: DockerClient, root: Path) -> None:
        self._client = client
        self._root = root
        self._id = uuid.uuid4().hex[:12]
        self._volumes: set[str] = set()
        self._filling = threading.Lock()
        self._pythons: dict[str, str] = {}

    _connect: Callable[[int], DockerClient] = staticmethod(daemon.connect)

    @classmethod
    def connect(cls, root: Path) -> Self:
        client = cls._connect(daemon.PATIENCE_S)
        version = daemon.version_of(client)
        if not version.lower().startswith(cls.name):
            client.close()
            raise EngineError(
                f"what answers at {daemon.address(client)} is {version}, no engine of the kind {cls.name}"
            )
        return cls(client, root)

    def __exit__(self, *exc_info: object) -> None:
        self._volumes.clear()
        try:
            # After a failure the first error is the one to report.
            with nullcontext() if exc_info[0] in {None, KeyboardInterrupt} else suppress(EngineError):
                made.remove_run(self._client, self._id)
        finally:
            self._client.close()

    @cached_property
    def version(self) -> str:
        return daemon.version_of(self._client)

    @property
    def machine(self) -> str:
        said = str(self._info.get("Architecture", ""))
        return {"amd64": "x86_64", "arm64": "aarch64"}.get(said, said)  # as Podman calls them

    @property
    def storage(self) -> Path | None:
        place = self._info.get("DockerRootDir")
        return Path(place) if place and self.local else None

    @cached_property
    def _info(self) -> Mapping[str, Any]:
        with speaking("ask the Docker engine about itself"):
            return self._client.info()

    @cached_property
    def _host(self) -> HostFacts:
        return host_facts(self._info.get("CDISpecDirs") or ()) if self.local else HostFacts()

    @property
    def local(self) -> bool:
        return daemon.is_here(self._client)

    def gpu_access(self) -> GpuAccess | None:
        return choose_gpu_access(self._info, local=self.local, host=self._host)

    def prepare(self, recipe: Recipe, note: Note) -> Prepared:
        if recipe.use_image:
            found = daemon.find_image(self._client, recipe.use_image)
            image = found or daemon.pull(self._client, recipe.use_image, note)
        else:
            made_by = override.with_its_own if recipe.over else build.ensure
            with speaking(f"build the image {recipe.image}"):
                image = made_by(self._client, self._root, recipe, note)
        note(f"looking for the Python of {image.name}")
        return Prepared(key=image.id, python=self._python(image), image=image)

    def absent(self, recipes: Iterable[Recipe]) -> Sequence[Recipe]:
        with speaking("look for images"):
            return build.absent(self._client, self._root, recipes)

    def image_id(self, name: str) -> str | None:
        found = daemon.find_image(self._client, name)
        return found.id if found else None

    def pack(self, recipes: Mapping[str, Recipe], into: Path, note: Note, has: Collection[str]) -> Packed:
        with closing(self._connect(packing.PATIENCE_S)) as client:
            return packing.pack(client, self._root, recipes.values(), into, note, has=has)

    def take_in(self, packed: Path, note: Note) -> None:
        with closing(self._connect(packing.PATIENCE_S)) as client:
            packing.take_in(client, packed, note)

    def _python(self, image: ImageFacts) -> str:
        """Return the path of the image's python3. Raises UsageError where there is none that runs."""
        if image.id not in self._pythons:
            request = TrialRequest(files={}, arguments=["-c", "import sys; print(sys.executable)"])
            result = self.run(Prepared(key=image.id, python="python3", image=image), request)
            if result.exit_status != 0:
                reason = (result.infra or result.stderr.strip() or "it said nothing").splitlines()[-1]
                raise UsageError(f"the image {image.name} has no python3 that runs: {reason}")
            self._pythons[image.id] = result.stdout.strip()
        return self._pythons[image.id]

    def run(self, prepared: Prepared, request: TrialRequest) -> TrialResult:
        name = f"casebook-{self._id}-{uuid.uuid4().hex[:8]}"
        with speaking("run a trial"):
            try:
                return self._run(name, prepared, request)
            except APIError as error:
                if daemon.disk_is_full(error):
                    raise
                # The engine is there, and would not run this container.
                reason = " ".join(str(error.explanation or error).split())
                infra = f"{self.version} would not run the trial: {reason}"
                return TrialResult(stdout="", stderr="", duration_s=0.0, infra=infra)
            finally:
                if not request.keep:
                    self._discard(name)

    def _run(self, name: str, prepared: Prepared, request: TrialRequest) -> TrialResult:
        container = self._create(name, prepared, request)
        output = ContainerOutput(container, request)
        container.start()
        ran_out = self._memory_watch(container)
        looker = Looker(container, prepared)
        if request.loaded:
            looker.start()
        watched = let_run(container, output, prepared, request)
        container.wait(timeout=_GRACE_S)
        output.ended.wait(_GRACE_S)
        if request.loaded:
            looker.join(_LOOK_GRACE_S)
            output.loaded = looker.seen
        state = state_of(container)
        begun, ended = (datetime.fromisoformat(state[key]) for key in ("StartedAt", "FinishedAt"))
        return output.result(
            state["ExitCode"],
            watched,
            duration_s=max(0.0, (ended - begun).total_seconds()),  # a short one may end before its start is noted
            out_of_memory=bool(state["OOMKilled"]) or ran_out(),
            kept=made.kept(name, request) if request.keep else None,
        )

    def _create(self, name: str, prepared: Prepared, request: TrialRequest) -> Container:
        tools = self._tools_part(name, prepared, request) if request.watch else Part()
        command = [*request.wrapper, prepared.python, *request.arguments]
        payload = self._volume(name, prepared, request.files, keep=request.keep)
        gpu = self._gpu_part(prepared, request)
        return self._client.containers.create(
            prepared.key,
            command[1:],
            entrypoint=command[:1],
            name=name,
            labels=self._labels(keep=request.keep),
            **self._container_options(request, payload=payload, gpu=gpu, tools=tools),
        )

    def _container_options(self, request: TrialRequest, *, payload: str, gpu: Part, tools: Part) -> dict[str, Any]:
        return options.container_options(request, payload=payload, gpu=gpu, tools=tools)

    def _memory_watch(self, _container: Container) -> Callable[[], bool]:
        """Return what says at the end whether the container ran out of memory, where its state may not say it."""
        return lambda: False

    def _gpu_part(self, prepared: Prepared, request: TrialRequest) -> Part:
        if not request.gpus:
            return Part()
        access = self.gpu_access()
        if access is None:
            raise MachineError("this Docker engine has no way to a GPU: no NVIDIA container toolkit, CDI or driver")
        minors = {gpu.index: gpu.minor for gpu in hardware.gpus()} if self.local else {}
        known = self._image_variables(prepared) | dict(request.variables)
        return options.gpu_part(access, request.gpus, host=self._host, minors=minors, known=known)

    def _tools_part(self, name: str, prepared: Prepared, request: TrialRequest) -> Part:
        tools = self._volume(f"{name}-tools", prepared, watching_tools(), keep=request.keep, mode=0o755)
        return options.tools_part(tools, known=self._image_variables(prepared) | dict(request.variables))

    def _image_variables(self, prepared: Prepared) -> dict[str, str]:
        lines = self._client.images.get(prepared.key).attrs["Config"].get("Env") or []
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def _labels(self, *, keep: bool = False) -> dict[str, str]:
        labels = {f"{LABEL}.run": self._id, f"{LABEL}.owner": str(Owner.current())}
        return labels | {f"{LABEL}.keep": "yes"} if keep else labels

    def _volume(
        self, name: str, prepared: Prepared, files: Mapping[str, bytes], *, keep: bool, mode: int = 0o644
    ) -> str:
        """Return the name of a volume that holds these files.

        There is one for each distinct set of files, but a kept trial has its own, of the name that is given.
        """
        archive = archive_of(files, mode=mode)
        if not keep:
            name = f"casebook-{self._id}-{hashlib.sha256(archive).hexdigest()[:12]}"
        with self._filling:
            if name not in self._volumes:
                self._fill(name, prepared, archive, keep=keep)
                self._volumes.add(name)
        return name

    def _fill(self, name: str, prepared: Prepared, archive: bytes, *, keep: bool) -> None:
        self._client.volumes.create(name, labels=self._labels(keep=keep))
        mount = daemon.Mount(CASE_DIRECTORY, name, type="volume", no_copy=True)
        # A volume is written through a container, which is never started.
        filler_name = f"{name}-filler"
        try:
            filler = self._client.containers.create(
                prepared.key, ["true"], name=filler_name, mounts=[mount], labels=self._labels(), network_mode="none"
            )
            filler.put_archive(CASE_DIRECTORY, archive)
        finally:
            self._discard(filler_name)

    def _discard(self, name: str) -> None:
        # What can't be removed now is removed on leaving the engine, or by the next sweep.
        with suppress(APIError):
            self._client.api.remove_container(name, force=True, v=True)

    def end_trials(self) -> None:
        with speaking("end the trials"):
            for each in self._client.api.containers(filters={"label": f"{LABEL}.run={self._id}"}):
                with suppress(APIError):  # it has just ended
                    self._client.api.kill(each["Id"])

    def sweep(self, *, dry_run: bool = False) -> Sequence[str]:
        return made.remove(self._client, made.is_left, dry_run=dry_run)
