"""SkyRL's Tinker server on a CPU, without uv: python skyrl_server.py BASE_DIRECTORY PORT SCRATCH_DIRECTORY"""

import os
import sys
import typing

import typing_extensions

# SkyRL 0.3 declares its types for Python 3.12; pydantic refuses them on older ones.
typing.TypedDict = typing_extensions.TypedDict

if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import uvicorn
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, config_to_argv

    base, port, scratch = sys.argv[1:]
    program = "import typing, typing_extensions; typing.TypedDict = typing_extensions.TypedDict; import runpy; runpy.run_module('skyrl.tinker.engine', run_name='__main__')"
    # The engine is started as `uv run … -m skyrl.tinker.engine`; here with the Python that runs this.
    api._build_uv_run_cmd_engine = lambda _parent, config: [sys.executable, "-c", program, *config_to_argv(config)]
    api.app.state.engine_config = EngineConfig(
        base_model=base,
        checkpoints_base=os.path.join(scratch, "checkpoints"),
        database_url=f"sqlite:///{os.path.join(scratch, 'tinker.db')}",
        # Fixed sizes: every new shape is compiled, for seconds each.
        backend_config={"sample_max_num_sequences": 64, "train_micro_batch_size": 16},
    )
    uvicorn.run(api.app, host="127.0.0.1", port=int(port), log_level="warning")
