"""Failures that gateways to chats are known for, each with the test that shows that it does not
happen here. A test that is renamed or taken out must be named here again."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

SHOWN = {
    "a start drops what was said while the service was away": (
        "channels/test_contract.py::test_what_was_said_while_the_service_was_away_is_answered"
    ),
    "what arrived before is known for some minutes only": (
        "channels/test_contract.py::test_what_is_said_is_answered_once_however_often_it_arrives"
    ),
    "a late or reordered update is refused by a watermark": (
        "channels/test_telegram.py::test_duplicate_late_and_reordered_updates_give_one_input_each"
    ),
    "an update is acknowledged and then lost": (
        "channels/test_telegram.py::"
        "test_an_update_is_acknowledged_after_it_is_stored_and_not_before"
    ),
    "inputs that wait are not run after a restart": (
        "gateway/test_chats_in_process.py::"
        "test_five_messages_during_a_turn_wait_through_a_kill_each_as_its_own_input"
    ),
    "a reader that leaves stops the turn": (
        "gateway/test_chats_in_process.py::"
        "test_a_platform_that_is_away_for_a_minute_stops_nothing_and_misses_nothing"
    ),
    "a failed send is tried again in memory only": (
        "gateway/test_chats_in_process.py::"
        "test_what_was_said_is_stored_once_answered_once_and_shown_as_it_is_stored"
    ),
    "a second try under a new id doubles a message": (
        "channels/test_matrix.py::test_a_message_whose_answer_was_lost_is_not_there_twice"
    ),
    "an unknown outcome is sent again blindly": (
        "channels/test_telegram.py::"
        "test_an_unknown_outcome_of_a_final_message_is_recorded_and_never_sent_again"
    ),
    "a flood limit leaves half a message and a second full one": (
        "channels/test_telegram.py::test_a_flood_limit_is_waited_for_and_the_answer_comes_once"
    ),
    "old messages are sent again after days": (
        "channels/test_telegram.py::"
        "test_what_expired_while_we_were_away_is_recorded_before_anything_is_sent"
    ),
    "an update that cannot be read blocks all behind it": "channels/test_fuzz.py::test_matrix",
    "two processes fight for one account": (
        "channels/test_telegram.py::test_start_new_stop_old_moves_the_account_without_a_fight"
    ),
    "an approval is lost by a restart, or a late tap is shown as done": (
        "channels/test_telegram.py::"
        "test_a_button_works_after_a_restart_and_a_second_tap_hears_what_was_decided"
    ),
    "an approval of a turn that is over runs the call": (
        "channels/test_telegram.py::test_an_approval_by_text_and_a_tap_after_a_stop_changes_nothing"
    ),
    "always is for ever": (
        "gateway/test_chats_in_process.py::"
        "test_always_ends_after_thirty_days_and_is_listed_until_then"
    ),
    "a missed run of a job is dropped without a word": (
        "gateway/test_jobs_in_process.py::"
        "test_killed_at_every_commit_an_occurrence_runs_is_posted_and_told_once"
    ),
    "a job posts two or three times": (
        "gateway/test_jobs_in_process.py::"
        "test_two_gateways_kills_and_clocks_that_are_set_give_one_run_a_time"
    ),
    "what a job posted is not in the chat's history": (
        "channels/test_jobs.py::"
        "test_what_a_job_posts_is_in_the_history_of_its_chat_and_nobodys_speech"
    ),
    "nothing to say looks like a failure": (
        "channels/test_jobs.py::test_a_job_with_nothing_to_say_posts_nothing"
    ),
    "the library of a platform tries again below us": (
        "channels/test_discord.py::test_a_message_whose_answer_was_lost_is_not_there_twice"
    ),
    "a display name in a list lets in who takes it": (
        "channels/test_people.py::test_a_display_name_in_an_allow_list_is_an_error_at_the_start"
    ),
    "Slack has no inbox": (
        "channels/test_slack.py::"
        "test_an_envelope_is_acknowledged_and_one_that_was_not_gives_one_input"
    ),
    "Slack's own library posts twice": (
        "channels/test_slack.py::"
        "test_a_message_whose_answer_was_lost_is_found_and_a_limit_is_waited_for"
    ),
    "a queue that is full drops messages into a summary": (
        "channels/test_kills.py::test_a_flood_in_one_chat_is_kept_in_order_and_answered"
    ),
    "an answer is not streamed, or comes a second time as a message of its own": (
        "channels/test_telegram.py::test_an_answer_is_streamed_by_edits_of_one_message"
    ),
    "a claim is held for the whole turn": (
        "gateway/test_chats_in_process.py::"
        "test_five_messages_during_a_turn_wait_through_a_kill_each_as_its_own_input"
    ),
    "a call is run without asking": (
        "channels/test_rights.py::test_a_call_waits_for_the_owner_through_a_restart_and_runs_once"
    ),
    "an answer counts as delivered that was not": (
        "channels/test_telegram.py::test_a_blocked_bot_gives_up_with_a_record"
    ),
    "one broken channel takes the others with it": (
        "gateway/test_chats_in_process.py::"
        "test_a_channel_that_raises_anything_and_an_update_that_is_none_end_nothing"
    ),
    "summer time doubles a job": (
        "engine/test_jobs.py::test_a_time_that_the_clocks_show_twice_comes_once"
    ),
    "a token from a URL is taken": ("channels/test_hook.py::test_a_token_from_a_url_opens_nothing"),
    "pairing in a direct chat gives rights in groups": (
        "channels/test_telegram.py::"
        "test_a_group_that_is_not_listed_gets_nothing_and_pairing_gives_no_group"
    ),
    "a blank secret accepts everybody": (
        "channels/test_people.py::test_a_channel_without_a_secret_does_not_start"
    ),
}


@pytest.mark.parametrize("failure", SHOWN)
def test_each_known_failure_has_a_test(failure: str) -> None:
    file, _, name = SHOWN[failure].partition("::")
    source = (ROOT / file).read_text()
    assert re.search(rf"^def {name}\(", source, re.MULTILINE), f"{failure}: {SHOWN[failure]}"
