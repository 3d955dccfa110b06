"""Reference cdc.md A.11: wrapper functions, which the emulator refuses by name."""

from __future__ import annotations

from conformance_server import Source


def test_wrapper_functions_are_generated_or_refused_by_name(shared: Source) -> None:
    shared.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    shared.enable("t")
    reply = shared.admin.send("EXEC sys.sp_cdc_generate_wrapper_function N'dbo_t'")
    if shared.server.is_emulator:
        (error,) = reply.errors
        assert (error.number, "sp_cdc_generate_wrapper_function" in error.text) == (49999, True)
    else:
        assert reply.results[-1].columns == ("function_name", "create_script")
