# SPDX-License-Identifier: Apache-2.0
"""torch.compile(backend="treadle"): the results of eager, whatever modules do with tensors."""

from __future__ import annotations

import math
import re
import resource
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle

torch: Any = pytest.importorskip("torch")
nn = torch.nn

from treadle.integrations.torch_compile import treadle_backend  # noqa: E402  # imports torch

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]


def compiled(model: Any, **options: Any) -> Any:
    """Return a module or function compiled by the backend."""
    torch._dynamo.reset()
    return torch.compile(model, backend=treadle_backend, **options)


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def mlp() -> Any:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 4)).eval()


@pytest.fixture(autouse=True)
def _for_inference() -> Any:
    with torch.no_grad():
        yield


@pytest.fixture
def whole(caplog: pytest.LogCaptureFixture) -> Any:
    """Fail a test in which something runs in torch."""
    yield
    assert not [r for r in caplog.records if r.name == "treadle.torch"], caplog.text


def test_the_backend_is_registered_by_its_name() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.split("[project.entry-points.torch_dynamo_backends]\n")[1]
    found = re.match(r'treadle = "([\w.]+):(\w+)"', section)
    assert found is not None
    assert getattr(import_module(found[1]), found[2]) is treadle_backend


@pytest.mark.usefixtures("whole")
def test_a_module_runs_whole_at_any_batch() -> None:
    model = mlp()
    fast = compiled(model, fullgraph=True)
    torch._dynamo.utils.counters.clear()
    for rows in (8, 3, 5, 1, 64):
        x = torch.randn(rows, 16)
        assert_close(fast(x), model(x))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3


@pytest.mark.usefixtures("whole")
def test_results_of_calls_of_equal_sizes_lie_apart() -> None:
    model = mlp()
    fast = compiled(model, fullgraph=True, dynamic=True)
    given = [torch.randn(rows, 16) for rows in (3, 4, 3, 4, 3, 4)]
    results = [fast(x) for x in given]
    for x, result in zip(given, results, strict=True):
        assert_close(result, model(x))
    assert len({r.data_ptr() for r in results}) == len(results)


@pytest.mark.usefixtures("whole")
def test_inference_mode_runs_too() -> None:
    model = mlp()
    fast = compiled(model)
    with torch.inference_mode():
        x = torch.randn(8, 16)
        assert_close(fast(x), model(x))


@pytest.mark.usefixtures("whole")
def test_weights_that_change_count_from_the_next_call_on() -> None:
    model, x = mlp(), torch.randn(8, 16)
    fast = compiled(model)
    assert_close(fast(x), model(x))
    model[0].weight.mul_(2)
    assert_close(fast(x), model(x))
    model.load_state_dict({k: torch.randn_like(v) for k, v in model.state_dict().items()})
    assert_close(fast(x), model(x), 1e-4)
    model[0].weight.data.mul_(2)  # which torch does not count as a change
    assert_close(fast(x), model(x), 1e-4)
    model[3].weight.data = torch.ones(4, 32)
    assert_close(fast(x), model(x), 1e-4)
    for _ in range(4):
        model[3].bias.add_(1)
        assert_close(fast(x), model(x), 1e-4)


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("width", [8, 512])  # compared whole, and by samples
def test_weights_that_change_behind_torch_count_from_the_next_call_on(width: int) -> None:
    model = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 4)).eval()
    model[0].weight.data = torch.randn(16, width).t()  # whose rows do not lie in order
    x = torch.randn(8, 16)
    fast = compiled(model)
    assert_close(fast(x), model(x), 1e-4)
    weight, largest = model[2].weight, int(model[2].weight.abs().argmax())
    kept = torch.arange(weight.numel()).reshape(weight.shape) % 3 != 0  # pruning
    kept.view(-1)[largest] = True
    for change in (
        lambda: weight.data.mul_(kept),
        lambda: model[0].weight.data.t().mul_(torch.rand(16, width) + 1),
        lambda: np.multiply(weight.detach().numpy(), 0.5, out=weight.detach().numpy()),
        lambda: model[0].bias.data[-1:].add_(1),  # one element of a small one
    ):
        change()
        assert_close(fast(x), model(x), 1e-4)


@pytest.mark.usefixtures("whole")
def test_layers_that_share_a_graph_keep_their_weights() -> None:
    torch._dynamo.reset()
    layers = [nn.Linear(6, 6) for _ in range(5)]
    for layer in layers:
        layer.compile(backend=treadle_backend)
    x = torch.randn(3, 6)
    for _ in range(2):
        for layer in layers:
            assert_close(layer(x), layer.forward(x))


def test_what_is_missing_runs_in_torch_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: Any) -> Any:
        return torch.linalg.svdvals(x * 2) @ x + 1

    x = torch.rand(8, 16)
    assert_close(compiled(function, fullgraph=True)(x), function(x))
    (record,) = [r for r in caplog.records if r.name == "treadle.torch"]
    assert re.fullmatch(
        r"treadle: 1 of \d+ operators run in torch, \d+% of the time: "
        r"aten\._linalg_svd\.default \(1\)",
        record.getMessage(),
    )


def test_random_numbers_are_those_of_torch() -> None:
    def function(x: Any) -> Any:
        a = torch.rand_like(x)
        return a * x + torch.rand_like(x + a)

    fast, x = compiled(function, fullgraph=True), torch.rand(4, 5)
    torch.manual_seed(3)
    wanted = function(x)
    torch.manual_seed(3)
    assert_close(fast(x), wanted)


def test_a_graph_for_training_is_torchs_own(caplog: pytest.LogCaptureFixture) -> None:
    model, x = mlp(), torch.randn(2, 16)
    with torch.enable_grad():
        compiled(model)(x).sum().backward()
    assert model[0].weight.grad is not None
    assert "it is for training" in caplog.text
    assert "torch.no_grad()" in caplog.text


def test_views_and_updates_in_place_are_those_of_torch() -> None:
    def function(x: Any, cache: Any) -> Any:
        cache[:, 2:4] += x[:, :2]
        return cache.view(-1)[3:], x.t()

    x, ours, theirs = torch.randn(8, 16), torch.zeros(8, 16), torch.zeros(8, 16)
    view, turned = compiled(function, fullgraph=True)(x, ours)
    wanted, _ = function(x, theirs)
    assert_close(ours, theirs)
    assert_close(view, wanted)
    assert view.data_ptr() == ours.data_ptr() + 12
    assert turned.data_ptr() == x.data_ptr()


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[x.shape[0] // 2 :],
        lambda x: x.view(-1)[x.shape[0] :],
        lambda x: (x.unbind(0)[1], x + 1),
        lambda x: (x.mul_(2), x[x.shape[0] // 2 :].t()),
    ],
)
def test_views_of_inputs_of_any_size_lie_where_eager_has_them(function: Any) -> None:
    fast = compiled(function, fullgraph=True, dynamic=True)
    for rows in (6, 8):
        ours, theirs = (torch.arange(3.0 * rows).reshape(rows, 3) for _ in range(2))
        results = zip(_listed(fast(ours)), _listed(function(theirs)), strict=True)
        for found, wanted in results:
            assert_close(found, wanted)
            if wanted.untyped_storage().data_ptr() == theirs.data_ptr():
                assert found.data_ptr() - ours.data_ptr() == wanted.data_ptr() - theirs.data_ptr()


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_that_view_one_tensor_share_it(dynamic: bool) -> None:
    def function(x: Any) -> Any:
        y, z = x + 1, x * 2
        return y, y.t(), y[1], y.t() * 2, z[0], z[:, 1:], z.view(-1)

    fast = compiled(function, fullgraph=True, dynamic=dynamic)
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        results, wanted = fast(x), function(x)
        assert_close(results, wanted)
        for made in (results, wanted):
            made[0][1, 2] = 9
            made[6][2] = 7
        assert_close(results, wanted)


def _listed(results: Any) -> Any:
    return results if isinstance(results, tuple) else (results,)


def test_a_split_where_data_say_is_of_views() -> None:
    fast = compiled(torch.tensor_split, fullgraph=True)
    x = torch.arange(12.0).reshape(6, 2)
    for places in ([2, 4], [0, 5]):
        parts = fast(x, torch.tensor(places))
        assert_close(parts, torch.tensor_split(x, torch.tensor(places)))
        assert parts[2].data_ptr() == x.data_ptr() + 8 * places[1]


@pytest.mark.usefixtures("whole")
def test_a_matrix_without_an_inverse_is_an_error_as_in_eager() -> None:
    fast = compiled(torch.linalg.inv, fullgraph=True)
    good, bad = torch.tensor([[2.0, 1], [1, 2]]), torch.tensor([[1.0, 2], [2, 4]])
    assert_close(fast(good), torch.linalg.inv(good))
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        fast(bad)


def test_a_seed_draws_the_numbers_of_eager() -> None:
    def function(x: Any) -> Any:
        return nn.functional.dropout(x, 0.5) + torch.rand_like(x) + torch.bernoulli(x.abs() / 9)

    x = torch.linspace(-1, 1, 40)
    torch.manual_seed(3)
    wanted = function(x)
    torch.manual_seed(3)
    assert_close(compiled(function, fullgraph=True)(x), wanted)


@pytest.mark.usefixtures("whole")
def test_results_have_the_strides_of_eager_and_inputs_any() -> None:
    def function(x: Any) -> Any:
        return x.transpose(0, 1) + 1, (x * 2).permute(2, 0, 1).contiguous()

    fast = compiled(function, fullgraph=True)
    x = torch.randn(3, 4, 5)
    for given in (x, x.permute(1, 2, 0), x.expand(3, 4, 5)[:, ::2]):
        for found, wanted in zip(fast(given), function(given), strict=True):
            assert_close(found, wanted)
            assert found.stride() == wanted.stride()


@pytest.mark.usefixtures("whole")
def test_images_with_channels_last() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()).eval()
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    assert_close(compiled(net, fullgraph=True)(x), net(x))


def test_a_number_that_only_a_run_knows() -> None:
    def function(x: Any) -> Any:
        return x * x.sum().item() + 1

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        fast = compiled(function, fullgraph=True)
        for x in (torch.rand(3), torch.rand(3)):
            assert_close(fast(x), function(x))


def test_a_graph_break_leaves_two_graphs() -> None:
    def function(x: Any) -> Any:
        y = torch.relu(x @ x)
        torch._dynamo.graph_break()
        return y.sum(0) + 1

    x = torch.randn(6, 6)
    assert_close(compiled(function)(x), function(x))


@pytest.mark.usefixtures("whole")
def test_a_size_that_is_a_number_may_change() -> None:
    def function(x: Any, n: int) -> Any:
        return x * n + x.shape[0]

    fast = compiled(function, dynamic=True, fullgraph=True)
    for n, rows in ((3, 4), (7, 5), (9, 6)):
        x = torch.randn(rows, 3)
        assert_close(fast(x, n), function(x, n))


@pytest.mark.usefixtures("whole")
def test_a_buffer_that_every_call_changes() -> None:
    class Counting(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.seen.add_(x.sum(0))
            return self.seen * 2

    model = Counting()
    fast = compiled(model, fullgraph=True)
    total = torch.zeros(3)
    for _ in range(4):
        x = torch.randn(2, 3)
        total += x.sum(0)
        assert_close(fast(x), total * 2)
    assert_close(model.seen, total)


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("rows", [(8, 8), (8, 5)])
def test_two_threads_call_one_module(rows: tuple[int, int]) -> None:
    model = mlp()
    fast = compiled(model, dynamic=rows[0] != rows[1])
    inputs = [torch.randn(n, 16) for n in rows]
    wanted = [model(x) for x in inputs]
    fast(inputs[0])
    failures: list[Exception] = []

    def call(k: int) -> None:
        try:
            with torch.no_grad():
                for _ in range(200):
                    assert_close(fast(inputs[k]), wanted[k])
        except Exception as error:  # shown by the test
            failures.append(error)

    threads = [threading.Thread(target=call, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("calls", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_memory_stays_flat_at_changing_shapes(calls: int) -> None:
    fast = compiled(lambda x: torch.relu(x @ x.t()).sum(0), dynamic=True)
    for k in range(200):
        fast(torch.ones(112 - k % 5, 104 - k % 5))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for k in range(calls):  # no shape comes twice before 8633 calls
        fast(torch.ones(16 + k % 97, 16 + k % 89))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10  # KiB


def test_an_error_of_torch_between_two_pieces_leaves_the_module_usable() -> None:
    class Factors(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            scaled = torch.relu(x) * 2 + 1
            factor = torch.linalg.cholesky(scaled)
            self.calls.add_(1)
            return torch.tanh(factor) + self.calls

    model, good = Factors(), torch.eye(4)
    fast = compiled(model)
    first = fast(good).clone()
    with pytest.raises((treadle.TreadleError, RuntimeError)):
        fast(torch.full((4, 4), float("nan")))
    assert_close(fast(good), first + 1)
    assert model.calls == 2


def test_an_error_inside_a_graph_leaves_the_module_usable() -> None:
    table = nn.Embedding(4, 3)
    fast = compiled(table)
    good = torch.tensor([1, 3])
    assert_close(fast(good), table(good))
    with pytest.raises((treadle.TreadleError, IndexError)):
        fast(torch.tensor([1, 9]))
    assert_close(fast(good), table(good))


def test_options_are_those_of_compile() -> None:
    fast = compiled(mlp(), options={"opt_level": 0})
    x = torch.randn(2, 16)
    assert fast(x).shape == (2, 4)
    with pytest.raises(Exception, match="has no option 'level'"):
        compiled(mlp(), options={"level": 0})(x)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_element_types(dtype: str) -> None:
    kind = getattr(torch, dtype)
    model, x = mlp().to(kind), torch.randn(4, 16).to(kind)
    assert_close(
        compiled(model, fullgraph=True)(x), model(x), 1e-5 if kind is torch.float64 else 0.05
    )


@pytest.mark.usefixtures("whole")
def test_sizes_that_are_products_of_known_ones_leave_one_piece() -> None:
    layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)).eval()

    def function(x: Any) -> Any:
        batch, steps, _ = x.shape
        return layers(x).view(batch * steps, 4)[: batch * (steps - 1)]

    fast = compiled(function, dynamic=True, fullgraph=True)
    for steps in (5, 3, 9):
        x = torch.randn(2, steps, 6)
        assert_close(fast(x), function(x))


@pytest.mark.usefixtures("whole")
def test_a_graph_of_views_alone_is_torchs_without_a_word() -> None:
    x = torch.randn(2, 3)
    assert compiled(lambda x: x.contiguous(), fullgraph=True)(x).equal(x)


@pytest.mark.usefixtures("whole")
def test_complex_numbers_are_two_real_ones() -> None:
    def function(x: Any) -> Any:
        return torch.view_as_real(torch.complex(x, x * 2))[..., 1] + 1

    x = torch.randn(3, 4)
    assert_close(compiled(function, fullgraph=True)(x), function(x))


def test_a_piece_after_operators_of_torch_takes_inputs_of_computed_sizes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def function(x: Any) -> Any:
        wide = torch.complex(x, x).view(torch.float32)  # [n, 2 m], which torch computes
        return torch.relu(wide.view(-1)) + x.shape[0]

    fast = compiled(function, dynamic=True, fullgraph=True)
    for rows, columns in ((4, 3), (7, 5)):
        x = torch.randn(rows, columns)
        assert_close(fast(x), function(x))
    assert "a piece" not in caplog.text


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x @ x.transpose(-1, -2)) / math.sqrt(x.size(-1)),
        lambda x: nn.functional.scaled_dot_product_attention(x, x, x),
        lambda x: nn.functional.interpolate(x, scale_factor=2),
        lambda x: nn.functional.interpolate(x, scale_factor=1.3, mode="bilinear"),
        lambda x: nn.functional.pad(x, (0, math.ceil(x.shape[3] / 8) * 8 - x.shape[3])),
        lambda x: x[:, :, : int(x.shape[2] * 0.7)] + math.ceil(x.shape[3] / 2),
    ],
)
def test_fractions_of_open_sizes_leave_nothing_to_torch(function: Any) -> None:
    fast = compiled(function, fullgraph=True, dynamic=True)
    for shape in ((2, 3, 9, 13), (3, 2, 12, 16)):
        x = torch.randn(shape)
        assert_close(fast(x), function(x))


@pytest.mark.usefixtures("whole")
def test_a_window_is_a_constant() -> None:
    fast = compiled(lambda x: x * torch.hamming_window(9), fullgraph=True)
    x = torch.randn(2, 9)
    assert_close(fast(x), x * torch.hamming_window(9))
