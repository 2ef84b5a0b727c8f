"""Which test shows which promise through which door: the library, the agent, each framework,
editors and MCP clients. A cell names a test that bears the promise's number, or says why there is
none."""

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROMISES = (2, 5, 9, 16, 17, 18, 19, 34, 35, 47, 48, 50, 75, 76)

LIBRARY, SESSIONS = "tests/store/test_library.py", "tests/programs/test_sessions.py"
AGENT = "tests/programs/test_agent.py"
CRASHES = "tests/adapters/test_crashes.py::test_an_adapter_keeps_what_it_acknowledged"
KEPT = "tests/adapters/test_promises.py"
BYTES = f"{KEPT}::test_what_was_given_comes_back_byte_for_byte"
REFUSED = f"{KEPT}::test_what_cannot_be_kept_is_refused_with_all_that_came_with_it"
CLOCK = f"{KEPT}::test_a_clock_that_is_set_back_changes_no_order"
CUT_OFF = f"{KEPT}::test_wherever_a_conversation_was_cut_off_a_request_that_goes_on_is_valid"
LANGGRAPH, PYDANTIC = "tests/adapters/test_langgraph.py", "tests/adapters/test_pydantic_ai.py"
STEPS, ADK = "tests/adapters/steps_contract.py", "tests/adapters/adk_contract.py"
ACP, MCP = "tests/clients/test_acp.py", "tests/clients/test_mcp.py"

WHOLE = "not: the framework gives its store whole messages; it never sees a piece"
RUNS = "not: the framework runs its tools itself and tells its store of the outcome only"
STATE = "not: a checkpoint is state and no speech; what was cut off is not in it"
ADDS = "not: the SDK only adds and expects nothing; two writers are in the row of 48"
SERVICE = "same: the lease and the store are those of the program; "

DOORS: dict[str, dict[int, str]] = {
    "library": {
        2: "tests/crash/test_kill.py::test_what_a_killed_process_acknowledged_is_there",
        5: f"{LIBRARY}::test_a_piece_is_stored_before_it_may_be_shown",
        9: f"{SESSIONS}::test_a_reader_goes_on_from_any_cursor_without_a_gap",
        16: f"{LIBRARY}::test_the_same_key_is_accepted_once",
        17: f"{LIBRARY}::test_of_many_requests_at_once_each_has_its_own_answer_in_order",
        18: "tests/store/test_contract.py",
        19: "not: a reply runs no tools",
        34: f"{LIBRARY}::test_a_crash_in_a_reply_is_shown_at_once_and_recovered_by_the_next_reply",
        35: "tests/models/test_validity.py::test_any_history_is_valid",
        47: "tests/store/test_contract.py",
        48: "tests/crash/test_kill.py",
        50: f"{LIBRARY}::test_what_is_said_to_a_session_with_a_damaged_fact_is_not_accepted",
        75: f"{LIBRARY}::test_whatever_is_passed_nothing_is_stored_that_cannot_be_read_back",
        76: "not: it is no framework's interface",
    },
    "agent": {
        2: f"{AGENT}::test_a_kill_keeps_every_character_shown_and_resume_goes_on",
        5: f"{AGENT}::test_a_kill_keeps_every_character_shown_and_resume_goes_on",
        9: f"{AGENT}::test_pieces_come_as_they_are_stored_and_are_the_answer",
        16: f"{AGENT}::test_the_same_key_is_answered_once",
        17: f"{AGENT}::test_many_turns_at_once_in_one_session_are_answered_one_after_the_other",
        18: SERVICE + "tests/program/test_fencing.py",
        19: f"{AGENT}::test_a_tool_that_was_cut_off_by_a_kill_is_not_run_again",
        34: f"{AGENT}::test_a_kill_keeps_every_character_shown_and_resume_goes_on",
        35: f"{AGENT}::test_a_kill_keeps_every_character_shown_and_resume_goes_on",
        47: SERVICE + "tests/program/test_clock.py",
        48: SERVICE + "tests/crash/test_kill.py",
        50: f"{AGENT}::test_a_damaged_session_takes_no_input_and_asks_no_model",
        75: f"{AGENT}::test_what_cannot_be_kept_is_refused_by_name_and_nothing_is_stored",
        76: "not: it is no framework's interface",
    },
    "OpenAI Agents SDK": {
        2: CRASHES,
        5: CRASHES,
        9: BYTES,
        16: "not: its items have no ids; it compares the end of a session itself before it repeats",
        17: ADDS,
        18: ADDS,
        19: RUNS,
        34: CUT_OFF,
        35: CUT_OFF,
        47: CLOCK,
        48: CRASHES,
        50: CRASHES,
        75: REFUSED,
        76: CRASHES,
    },
    "Claude Agent SDK": {
        2: CRASHES,
        5: WHOLE,
        9: BYTES,
        16: "tests/adapters/test_claude_agent.py::test_an_entry_that_is_sent_again_is_kept_once",
        17: ADDS,
        18: ADDS,
        19: RUNS,
        34: CUT_OFF,
        35: CUT_OFF,
        47: CLOCK,
        48: CRASHES,
        50: CRASHES,
        75: REFUSED,
        76: CRASHES,
    },
    "LangGraph": {
        2: CRASHES,
        5: WHOLE,
        9: BYTES,
        16: "not: `put` has no key, and each checkpoint has an id of its own",
        17: f"{LANGGRAPH}::test_a_checkpoint_after_one_that_is_not_the_newest_is_refused",
        18: f"{LANGGRAPH}::test_a_checkpoint_after_one_that_is_not_the_newest_is_refused",
        19: RUNS,
        34: STATE,
        35: STATE,
        47: CLOCK,
        48: f"{LANGGRAPH}::test_of_two_processes_none_loses_a_turn_that_was_acknowledged",
        50: CRASHES,
        75: REFUSED,
        76: f"{LANGGRAPH}::test_langgraphs_own_conformance_suite_passes_whole",
    },
    "pydantic-ai": {
        2: CRASHES,
        5: WHOLE,
        9: BYTES,
        16: f"{PYDANTIC}::test_messages_are_stored_once_and_read_back",
        17: f"{PYDANTIC}::test_a_conversation_that_was_saved_since_is_refused",
        18: f"{PYDANTIC}::test_a_conversation_that_was_saved_since_is_refused",
        19: RUNS,
        34: CUT_OFF,
        35: CUT_OFF,
        47: CLOCK,
        48: CRASHES,
        50: CRASHES,
        75: REFUSED,
        76: f"{PYDANTIC}::test_messages_are_stored_once_and_read_back",
    },
    "pydantic-ai's harness": {
        2: f"{STEPS}::test_snapshots_stay_through_kills_a_full_disk_and_damage",
        5: WHOLE,
        9: f"{STEPS}::test_what_was_given_comes_back_byte_for_byte",
        16: f"{STEPS}::test_an_event_that_is_stored_again_is_kept_once",
        17: ADDS,
        18: f"{STEPS}::test_of_two_runs_with_one_id_the_second_is_refused",
        19: f"{STEPS}::test_a_call_that_was_started_is_unresolved_until_it_has_ended",
        34: STATE,
        35: STATE,
        47: f"{STEPS}::test_a_clock_that_is_set_back_changes_no_order",
        48: f"{STEPS}::test_snapshots_stay_through_kills_a_full_disk_and_damage",
        50: f"{STEPS}::test_snapshots_stay_through_kills_a_full_disk_and_damage",
        75: f"{STEPS}::test_what_cannot_be_kept_is_refused_with_all_that_came_with_it",
        76: f"{STEPS}::test_an_event_that_is_stored_again_is_kept_once",
    },
    "Google ADK": {
        2: f"{ADK}::test_events_stay_through_kills_a_full_disk_and_damage",
        5: WHOLE,
        9: f"{ADK}::test_what_was_given_comes_back_byte_for_byte",
        16: f"{ADK}::test_events_stay_through_kills_a_full_disk_and_damage",
        17: f"{ADK}::test_a_session_that_was_changed_since_is_refused",
        18: f"{ADK}::test_a_session_that_was_changed_since_is_refused",
        19: RUNS,
        34: "not: an event is kept whole or not at all",
        35: "same: every history is made valid, whatever its facts; "
        "tests/models/test_validity.py::test_any_history_is_valid",
        47: f"{ADK}::test_a_clock_that_is_set_back_changes_no_order",
        48: f"{ADK}::test_events_stay_through_kills_a_full_disk_and_damage",
        50: f"{ADK}::test_events_stay_through_kills_a_full_disk_and_damage",
        75: f"{ADK}::test_what_cannot_be_kept_is_refused_with_all_that_came_with_it",
        76: f"{ADK}::test_events_stay_through_kills_a_full_disk_and_damage",
    },
    "editors (ACP)": {
        2: f"{ACP}::test_after_a_kill_in_mid_stream_a_load_shows_every_character_again",
        5: f"{ACP}::test_after_a_kill_in_mid_stream_a_load_shows_every_character_again",
        9: f"{ACP}::test_an_editor_begins_prompts_allows_lists_forks_and_chooses",
        16: "not: a prompt has no id in the protocol, and a client repeats none by itself",
        17: f"{ACP}::test_what_two_editors_say_at_once_is_answered_one_after_the_other",
        18: SERVICE + "tests/program/test_fencing.py",
        19: f"{ACP}::test_a_call_that_a_kill_cut_off_is_not_made_again_and_damage_is_told",
        34: f"{ACP}::test_a_call_that_a_kill_cut_off_is_not_made_again_and_damage_is_told",
        35: SERVICE + "tests/runtimes/test_boundaries.py",
        47: f"{ACP}::test_what_two_editors_say_at_once_is_answered_one_after_the_other",
        48: SERVICE + "tests/crash/test_kill.py",
        50: f"{ACP}::test_a_call_that_a_kill_cut_off_is_not_made_again_and_damage_is_told",
        75: f"{ACP}::test_what_two_editors_say_at_once_is_answered_one_after_the_other",
        76: "not: it is no framework's interface",
    },
    "MCP clients": {
        2: f"{MCP}::test_what_was_sent_is_answered_though_the_server_is_killed",
        5: f"{MCP}::test_a_client_sends_once_waits_reads_and_searches",
        9: f"{MCP}::test_a_client_sends_once_waits_reads_and_searches",
        16: f"{MCP}::test_a_client_sends_once_waits_reads_and_searches",
        17: f"{MCP}::test_an_interrupted_answer_and_damage_are_told_as_what_they_are",
        18: SERVICE + "tests/program/test_fencing.py",
        19: SERVICE + "tests/runtimes/test_boundaries.py",
        34: f"{MCP}::test_an_interrupted_answer_and_damage_are_told_as_what_they_are",
        35: SERVICE + "tests/runtimes/test_boundaries.py",
        47: SERVICE + "tests/program/test_clock.py",
        48: SERVICE + "tests/crash/test_kill.py",
        50: f"{MCP}::test_an_interrupted_answer_and_damage_are_told_as_what_they_are",
        75: f"{MCP}::test_a_client_sends_once_waits_reads_and_searches",
        76: "not: it is no framework's interface",
    },
}


@functools.cache
def marked(file: str) -> dict[str, set[int]]:
    """The promises that each test of a file bears."""
    found: dict[str, set[int]] = {}
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = [one for one in node.decorator_list if "mark.promise" in ast.unparse(one)]
            numbers = [arg for mark in marks if isinstance(mark, ast.Call) for arg in mark.args]
            found[node.name] = {int(ast.literal_eval(number)) for number in numbers}
    return found


@pytest.mark.parametrize("door", DOORS)
def test_a_door_has_a_test_or_a_reason_for_every_promise(door: str) -> None:
    assert tuple(DOORS[door]) == PROMISES
    for promise, cell in DOORS[door].items():
        if cell.startswith("not: "):
            continue
        file, _, name = cell.rpartition(" ")[2].partition("::")
        borne = marked(file)
        assert promise in (borne[name] if name else set().union(*borne.values())), (promise, cell)
