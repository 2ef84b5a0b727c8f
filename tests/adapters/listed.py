"""Tests of the frameworks that fail with steno in the place of their stores, and why."""

INSIDE = "looks into the SDK's own SQLite store: its connections, locks, tables and commits"
DAMAGE = "wants a damaged row to be skipped; steno reports damage and never skips it"
TICKS = "counts turns of the event loop; a store that waits for a disk takes more of them"
TIMES = "sets the times of the SDK's store in memory"

_ENCRYPT = "tests/extensions/memory/test_encrypt_session.py::test_encrypted_pop_"
_COMPACT = (
    "tests/memory/test_openai_responses_compaction_session.py::TestOpenAIResponsesCompactionSession"
)
_SESSION = "tests/memory/test_session.py::test_sqlite_session_"
_RESUME = "tests/test_session_resume.py::Test"

LISTED: dict[str, str] = {
    _ENCRYPT + "authentication_is_atomic_with_concurrent_mutations": INSIDE,
    _ENCRYPT + "wrong_key_preserves_row_identity": INSIDE,
    _COMPACT + "::test_settled_pop_failure_invalidates_response_chain": INSIDE,
    _COMPACT + "::test_settled_clear_failure_invalidates_response_chain": INSIDE,
    _SESSION + "close_closes_worker_thread_connections": INSIDE,
    _SESSION + "reaps_connections_from_exited_worker_threads": INSIDE,
    _SESSION + "closes_retired_connections_before_the_next_allocation": INSIDE,
    _SESSION + "keeps_connections_of_live_worker_threads": INSIDE,
    _SESSION + "closed_rejects_empty_add_items": "wants the name of the SDK's class in the error",
    _SESSION + "pop_item_skips_corrupt_most_recent": DAMAGE,
    _SESSION + "pop_item_returns_none_after_dropping_only_corrupt_rows": DAMAGE,
    _SESSION + "get_items_limit_skips_corrupt_newest_rows": DAMAGE,
    _SESSION + "get_items_session_settings_limit_skips_corrupt_rows": DAMAGE,
    _SESSION + "file_lock_is_shared_across_instances": INSIDE,
    _SESSION + "failed_add_items_releases_write_lock": INSIDE,
    _SESSION + "failed_clear_session_rolls_back": INSIDE,
    _SESSION + "failed_pop_item_releases_write_lock": INSIDE,
    _SESSION + "rollback_failure_evicts_connection": INSIDE,
    _SESSION + "close_retries_quarantined_connection": INSIDE,
    _SESSION + "post_commit_cancellation_propagates_after_known_outcome": INSIDE,
    "tests/test_run_impl_resume_paths.py::"
    "test_handoff_resume_after_cancelled_compaction_commits": INSIDE,
    "tests/test_session_helpers_store.py::"
    "TestListSessionsFromStore::test_load_concurrency_is_bounded": TICKS,
    "tests/test_session_summary.py::"
    "TestListSessionsFromStoreFastPath::test_gap_fill_bounded_concurrency": TICKS,
    _RESUME + "TimeoutsAndErrors::test_cancelled_after_mkdtemp_cleans_temp_dir": TICKS,
    "tests/test_transcript_mirror.py::TestReceiveLoopFramePeeling::"
    "test_eager_flush_mode_appends_per_frame_before_result": TICKS,
    _RESUME + "HappyPath::test_continue_picks_most_recent": TIMES,
    _RESUME + "HappyPath::test_continue_skips_sidechain_sessions": TIMES,
    _RESUME + "HappyPath::test_continue_tie_break_is_deterministic": TIMES,
}
"""The beginning of a test's name, and the reason."""
