# SPDX-License-Identifier: Apache-2.0
"""Programs of torch.export as graph modules: names, weights, state, sizes, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle
from tests.frontend.torch.programs import as_module, assert_agrees
from treadle.cli.main import main
from treadle.graph.nodes import Constant, topological
from treadle.graph.types import TensorType

torch: Any = pytest.importorskip("torch")
nn = torch.nn

from treadle.integrations.torch_compile import treadle_backend  # noqa: E402  # imports torch

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning"),
]


class Counting(nn.Module):  # type: ignore[misc]
    """Adds up what it has seen in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: Any, times: int = 2) -> Any:
        y = torch.relu(self.layer(x))
        self.seen.add_(y.sum(0))
        return y.reshape(-1) * times, self.seen + 1


def test_weights_share_the_memory_of_torch() -> None:
    layer = nn.Linear(64, 32).eval()
    module = treadle.from_torch(layer, torch.zeros(2, 64))
    held = [n for n in topological([module.main.body]) if isinstance(n, Constant)]
    pointers = {n.value.ctypes.data for n in held}
    assert {layer.weight.data_ptr(), layer.bias.data_ptr()} <= pointers


def test_inputs_and_outputs_have_the_names_of_arguments() -> None:
    module = treadle.from_torch(Counting().eval(), {"x": torch.zeros(3, 4)})
    assert [p.name for p in module.main.params] == ["x", "seen"]
    assert module.output_names == ("output_0", "output_1", "seen")


def test_a_buffer_that_changes_is_an_input_and_an_output() -> None:
    model, x = Counting().eval(), torch.randn(3, 4)
    exe = treadle.compile(model, (x,))
    state = torch.zeros(8)
    with torch.no_grad():
        for _ in range(3):
            want, want_seen = model(x)
            got, got_seen, state = exe.run([x, state])
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)
            np.testing.assert_allclose(got_seen.numpy(), want_seen.numpy(), rtol=1e-5)
    np.testing.assert_allclose(state.numpy(), model.seen.numpy(), rtol=1e-5)


def test_open_sizes_stay_open() -> None:
    batch = torch.export.Dim("batch", min=2, max=100)
    layer = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Flatten(0)).eval()
    exe = treadle.compile(layer, (torch.zeros(3, 4),), dynamic_shapes=({0: batch},))
    for rows in (2, 5, 64):
        x = torch.randn(rows, 4)
        (found,) = exe.run([x])
        np.testing.assert_allclose(found.numpy(), layer(x).detach().numpy(), atol=1e-5)


def test_example_inputs_may_be_names_and_shapes() -> None:
    layer = nn.Embedding(7, 3).eval()
    module = treadle.from_torch(layer, [("ids", ((2, 5), "int64"))])
    assert module.main.params[0].type == TensorType((2, 5), "int64")


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)),
        nn.LSTM(6, 5, batch_first=True),
        nn.GRU(6, 5, num_layers=2, bidirectional=True),
        nn.TransformerEncoderLayer(6, 2, 12, batch_first=True),
    ],
    ids=["mlp", "lstm", "gru", "transformer"],
)
def test_layers_on_sequences(module: Any) -> None:
    assert_agrees(module.eval(), torch.randn(2, 4, 6))


def test_a_convolutional_network() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
        nn.Softmax(-1),
    )
    assert_agrees(net.eval(), torch.randn(2, 3, 16, 16))


def test_all_operators_that_are_missing_are_told_at_once() -> None:
    def spectra(x: Any) -> Any:
        return torch.linalg.svdvals(x), torch.linalg.eigvalsh(x), torch.linalg.svdvals(x.T)

    with pytest.raises(treadle.UnsupportedOperators) as error:
        treadle.from_torch(as_module(spectra), torch.zeros(3, 3))
    assert "2 operators (3 nodes) of this model are not supported" in str(error.value)
    assert "aten._linalg_svd.default: 2 nodes, first _linalg_svd" in str(error.value)


def test_selections_whose_size_depends_on_data() -> None:
    def chosen(x: Any, y: Any) -> Any:
        kept = torch.masked_select(x, torch.stack([x, -x]) > 0)
        values, places, counts = torch.unique(y, return_inverse=True, return_counts=True)
        return kept * 2, x[y > 1], values, places, counts

    exe = treadle.compile(as_module(chosen), (torch.zeros(6), torch.zeros(6, dtype=torch.int64)))
    for x, y in (
        (torch.randn(6), torch.tensor([3, 1, 3, 2, 1, 3])),
        (-torch.ones(6), torch.ones(6)),
    ):
        given = (x, y.long())
        for found, wanted in zip(exe.run(list(given)), chosen(*given), strict=True):
            assert found.shape == tuple(wanted.shape)
            np.testing.assert_array_equal(found.numpy(), wanted.numpy())


def test_rows_are_repeated_as_often_as_data_say() -> None:
    def lengthened(x: Any, times: Any) -> list[Any]:
        known = torch.repeat_interleave(x, times, dim=1, output_size=6)
        return [torch.repeat_interleave(x, times, dim=1), torch.repeat_interleave(times), known]

    for times in ([2, 0, 3, 1], [0, 0, 0, 6]):
        assert_agrees(lengthened, torch.randn(2, 4, 3), torch.tensor(times))


def test_an_error_names_the_node_its_types_and_the_line() -> None:
    class Turned(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.fft.fft(x, n=65537).abs()

    with pytest.raises(treadle.ModelError) as error:
        treadle.from_torch(Turned(), torch.zeros(16))
    assert "a Fourier transform of 65537 elements" in str(error.value)
    assert f"{__file__}:" in error.value.at
    assert error.value.at.startswith("Turned, node _fft_r2c, operator aten._fft_r2c.default(")
    assert error.value.at.endswith("in forward")
    assert "near its square root" in error.value.hint


def test_a_module_needs_example_inputs() -> None:
    with pytest.raises(treadle.UsageError, match="none are given") as error:
        treadle.compile(nn.Linear(2, 2))
    assert "treadle.compile(module, (torch.zeros" in str(error.value)


def test_a_module_that_torch_cannot_export_says_why() -> None:
    def branching(x: Any) -> Any:
        return x + 1 if x.sum() > 0 else x

    with pytest.raises(treadle.ModelError, match="cannot export the module"):
        treadle.from_torch(as_module(branching), torch.zeros(3))


def test_dimensions_that_do_not_fit_are_told_with_those_that_do() -> None:
    def branching(x: Any) -> Any:
        return x * 2 if x.shape[0] > 8 else x

    shapes = (({0: torch.export.Dim("rows")},),)
    with pytest.raises(treadle.TreadleError, match="Not all values of rows") as error:
        treadle.compile(as_module(branching), (torch.zeros(4, 2),), dynamic_shapes=shapes)
    assert error.value.hint == (
        "change dynamic_shapes as torch suggests: rows = Dim('rows', max=8)"
    )


def test_training_mode_is_noted() -> None:
    from treadle.build.compile import Report

    report = Report()
    treadle.compile(nn.Linear(2, 2), (torch.zeros(1, 2),), report=report)
    assert any("training mode" in note for note in report.notes)


def test_files_of_programs_and_of_torchscript(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).eval(), torch.randn(2, 4)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "m.pt2")
    torch.jit.script(model).save(tmp_path / "m.pt")
    ways: list[dict[str, Any]] = [{}, {"example_inputs": x}, {"shapes": {"input": (2, 4)}}]
    for name, given in zip(("m.pt2", "m.pt", "m.pt"), ways, strict=True):
        (found,) = treadle.compile(tmp_path / name, **given).run([x])
        np.testing.assert_allclose(found.numpy(), model(x).detach().numpy(), atol=1e-5)


def test_a_file_of_something_else_says_so(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "weights.pt")
    (tmp_path / "empty.pt2").write_bytes(b"")
    with pytest.raises(treadle.ModelError, match="no TorchScript module") as error:
        treadle.compile(tmp_path / "weights.pt", torch.zeros(1, 2))
    assert "torch.save holds weights" in error.value.hint
    with pytest.raises(treadle.ModelError, match="is no program of torch"):
        treadle.compile(tmp_path / "empty.pt2")


def test_torchscript_needs_shapes_of_its_own_inputs(tmp_path: Path) -> None:
    torch.jit.script(nn.Linear(4, 3)).save(tmp_path / "m.pt")
    with pytest.raises(treadle.UsageError, match="none are given") as error:
        treadle.compile(tmp_path / "m.pt")
    assert "--input-shapes" in error.value.hint
    with pytest.raises(treadle.InputError, match="no input 'inpt'") as wrong:
        treadle.compile(tmp_path / "m.pt", shapes={"inpt": (2, 4)})
    assert "did you mean 'input'?" in wrong.value.hint


class Choosing(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        def then(x: Any) -> Any:
            return self.layer(x), x + 1

        def other(x: Any) -> Any:
            return x * 2, x - 1

        return torch.cond(x.sum() > 0, then, other, (x,))


def test_a_condition_chooses_at_run_time() -> None:
    model = Choosing().eval()
    exe = treadle.compile(model, torch.zeros(3, 4))
    for x in (torch.ones(3, 4), -torch.ones(3, 4)):
        for found, wanted in zip(exe.run([x]), model(x), strict=True):
            np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_fast_path_of_encoder_layers(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True, norm_first=norm_first).eval()
    x, padding = torch.randn(2, 4, 6), torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1]]).bool()
    program = torch.export.export(layer, (x, None, padding))
    with torch.no_grad():
        (found,) = treadle.compile(program).run([x, padding])
        wanted = layer(x, None, padding)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_are_scaled_with_antialiasing(mode: str) -> None:
    targets: list[dict[str, Any]] = [
        {"size": (4, 5)},
        {"size": (13, 6)},
        {"scale_factor": 0.6},
        {"scale_factor": (0.4, 1.7)},
    ]

    def function(x: Any) -> list[Any]:
        scaled = torch.nn.functional.interpolate
        return [scaled(x, mode=mode, antialias=True, **target) for target in targets]

    x = torch.randn(2, 3, 9, 11)
    assert_agrees(function, x)
    torch._dynamo.reset()
    fast = torch.compile(function, backend=treadle_backend, fullgraph=True)
    with torch.no_grad():
        for found, wanted in zip(fast(x), function(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_operators_beyond_the_core_are_written_by_others() -> None:
    def function(x: Any, filters: Any) -> Any:
        lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scaled = torch.nn.functional.batch_norm(filters, None, None, training=True)
        return x / lengths, scaled

    assert_agrees(function, torch.randn(3, 5), torch.randn(4, 2, 6))


def test_checks_of_numbers_that_data_decide_are_left_out() -> None:
    def function(x: Any, lengths: Any) -> Any:
        torch._check(lengths.max().item() <= x.shape[1])
        return x * 2

    assert_agrees(function, torch.randn(2, 5), torch.tensor([3, 5]))


def test_checks_in_an_order_are_left_out() -> None:
    def solved(x: Any, y: Any) -> list[Any]:
        positive = x @ x.mT + torch.eye(4)
        return [torch.linalg.solve(positive, y), torch.linalg.cholesky(positive)]

    assert_agrees(solved, torch.randn(4, 4), torch.randn(4, 2))


def test_a_number_in_a_tensor_may_be_a_size() -> None:
    def counted(x: Any, count: Any) -> Any:
        size = count.item()
        torch._check(size >= 0)
        return torch.arange(size) * 2 + x.sum().to(torch.int64)

    exe = treadle.compile(as_module(counted), (torch.ones(3), torch.tensor(4)))
    for size in (4, 7, 0):
        (found,) = exe.run([torch.ones(3), torch.tensor(size)])
        assert found.numpy().tolist() == [2 * k + 3 for k in range(size)]


def test_operators_that_torch_writes_by_others_on_demand() -> None:
    def function(x: Any, w: Any) -> Any:
        return torch.nn.functional.conv1d(x, w, padding=1) + torch.nn.functional.avg_pool1d(x, 1)

    assert_agrees(function, torch.randn(2, 3, 9), torch.randn(3, 3, 3))


@pytest.mark.parametrize("place", ["inside", "module", "inputs", "program"])
def test_inference_mode_changes_nothing(place: str) -> None:
    def made() -> Any:
        return nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU()).eval()

    module, x = made(), torch.randn(2, 3, 9)
    with torch.inference_mode():
        if place == "inside":
            exe = treadle.compile(module, (x,))
        elif place == "module":
            module = made()
        elif place == "inputs":
            x = torch.randn(2, 3, 9)
        else:
            module = made()
            exe = treadle.compile(torch.export.export(module, (torch.randn(2, 3, 9),)))
    if place in ("module", "inputs"):
        exe = treadle.compile(module, (x,))
    (found,) = exe.run([x.numpy()])
    with torch.inference_mode():
        np.testing.assert_allclose(found.numpy(), module(x).numpy(), atol=1e-6)


def test_the_command_checks_what_it_makes_of_a_program(tmp_path: Path) -> None:
    free = torch.export.Dim("rows")
    program = torch.export.export(
        torch.nn.Linear(3, 2), (torch.zeros(4, 3),), dynamic_shapes=({0: free},)
    )
    path = tmp_path / "linear.pt2"
    torch.export.save(program, path)
    assert main(["compile", str(path), "-o", str(tmp_path / "linear.tar"), "--check"]) == 0
