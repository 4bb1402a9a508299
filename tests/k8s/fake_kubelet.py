# SPDX-License-Identifier: Apache-2.0
"""A kubelet's device manager, as far as a plugin sees it, over Debian's grpcio.

A kubelet that starts empties its folder, listens on kubelet.sock, and knows no plugin. The older order:
it answers Register, then calls the plugin, with the socket's path as :authority. The newer order: it
calls the plugin within Register, and answers then.
"""

import concurrent.futures
import pathlib
import shutil
import subprocess
import threading

import grpc
from wire import PATIENCE

HERE = pathlib.Path(__file__).resolve().parent


def make_stubs(folder):
    """Python modules of kubelet.proto, in folder, which is on sys.path."""
    plugin = shutil.which("grpc_python_plugin")
    assert plugin, "protobuf-compiler-grpc is missing (scripts/setup test)"
    subprocess.run(
        ["protoc", f"--proto_path={HERE}", f"--python_out={folder}", f"--grpc_out={folder}",
         f"--plugin=protoc-gen-grpc={plugin}", "kubelet.proto"],
        check=True,
    )


class Kubelet:
    """calls: 'new' or 'old', the order of calls."""

    def __init__(self, folder, calls="new"):
        import kubelet_pb2
        import kubelet_pb2_grpc

        self.pb, self.rpc = kubelet_pb2, kubelet_pb2_grpc
        self.folder = folder
        self.calls = calls
        self.registrations = []
        self.refusals = 0  # so many registrations are refused
        self.lists = []
        self.options = None
        self.news = threading.Condition()
        self.channels = []
        self.stub = None
        self.server = None

    # ---- life ----

    def start(self, name="kubelet.sock"):
        """name: another one's owner has its socket still, and deletes nothing."""
        for path in self.folder.iterdir() if name == "kubelet.sock" else ():
            if not path.is_dir():
                path.unlink()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=8))
        register = {"Register": lambda _, *args: self.register(*args)}
        servicer = type("Servicer", (self.rpc.RegistrationServicer,), register)
        self.rpc.add_RegistrationServicer_to_server(servicer(), self.server)
        self.server.add_insecure_port(f"unix:{self.folder}/{name}")
        self.server.start()
        return self

    def stop(self):
        """As it dies: its connections end."""
        for channel in self.channels:
            channel.close()
        self.channels = []
        if self.server:
            self.server.stop(None).wait()
        self.server = None

    # ---- calls ----

    def register(self, request, context):
        with self.news:
            self.registrations.append(request)
            refused = self.refusals > 0
            self.refusals -= refused
            self.news.notify_all()
        if refused:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not now: \"éà\" 100 %")
        if self.calls == "new":
            self.dial(request)
            self.options = self.stub.GetDevicePluginOptions(self.pb.Empty(), timeout=PATIENCE)
            threading.Thread(target=self.watch, args=(self.stub,), daemon=True).start()
        else:
            self.options = request.options
            threading.Thread(target=lambda: (self.dial(request), self.watch(self.stub)), daemon=True).start()
        return self.pb.Empty()

    def dial(self, request):
        path = f"{self.folder}/{request.endpoint}"
        options = [("grpc.use_local_subchannel_pool", 1)]  # each kubelet has a connection of its own
        if self.calls == "old":
            options.append(("grpc.default_authority", path))
        channel = grpc.insecure_channel(f"unix:{path}", options=options)
        self.channels.append(channel)
        self.stub = self.rpc.DevicePluginStub(channel)

    def watch(self, stub):
        try:
            for response in stub.ListAndWatch(self.pb.Empty()):
                with self.news:
                    self.lists.append(response.devices)
                    self.news.notify_all()
        except (grpc.RpcError, ValueError):  # ValueError: the channel was closed before
            pass

    def wait(self, what, condition, patience=PATIENCE):
        with self.news:
            assert self.news.wait_for(condition, patience), what
            return condition()

    def wait_registered(self, n=1):
        return self.wait(f"{n} registrations", lambda: len(self.registrations) >= n and self.registrations[-1])

    def wait_devices(self, condition=lambda health: health):
        """The list, as {ID: health}, once it is as condition says."""

        def newest():
            health = {device.ID: device.health for device in self.lists[-1]} if self.lists else {}
            return condition(health) and health

        return self.wait("the list of devices", newest)

    def prefer(self, available, size, must=(), timeout=PATIENCE):
        """The devices that the plugin would rather give; available may be several containers' lists."""
        lists = available if available and not isinstance(available[0], str) else [available]
        request = self.pb.PreferredAllocationRequest(container_requests=[
            self.pb.ContainerPreferredAllocationRequest(
                available_deviceIDs=ids, must_include_deviceIDs=must, allocation_size=size)
            for ids in lists
        ])
        answer = self.stub.GetPreferredAllocation(request, timeout=timeout)
        chosen = [list(response.deviceIDs) for response in answer.container_responses]
        return chosen if lists is available else chosen[0]

    def allocate(self, *containers):
        """containers: lists of IDs. What each gets."""
        request = self.pb.AllocateRequest(
            container_requests=[self.pb.ContainerAllocateRequest(devices_ids=ids) for ids in containers])
        return list(self.stub.Allocate(request, timeout=PATIENCE).container_responses)

    def expect_refused(self, *containers):
        """The code's name and the reason, as the kubelet shows it in an event."""
        try:
            self.allocate(*containers)
        except grpc.RpcError as error:
            return error.code().name, error.details()
        raise AssertionError("the plugin did not refuse")
