from __future__ import annotations

from localllm.engines.backoff import Backoff, Quarantine


def test_the_pause_doubles_and_counts_from_the_last_crash() -> None:
    backoff = Backoff()
    assert backoff.wait_s(0.0) == 0.0
    for crash, (at_s, pause_s) in enumerate([(0.0, 1.0), (10.0, 2.0), (20.0, 4.0), (30.0, 8.0)], 1):
        backoff.crashed(at_s)
        assert backoff.wait_s(at_s) == pause_s, crash
        assert backoff.wait_s(at_s + pause_s) == 0.0


def test_five_crashes_in_five_minutes_end_the_tries_until_the_window_has_passed() -> None:
    backoff = Backoff()
    for at_s in (0.0, 10.0, 20.0, 30.0):
        backoff.crashed(at_s)
    assert not backoff.given_up(30.0)
    backoff.crashed(40.0)
    assert backoff.given_up(40.0)
    assert backoff.wait_s(40.0) == 260.0
    assert not backoff.given_up(300.0)
    assert backoff.wait_s(300.0) == 0.0


def test_quiet_minutes_and_a_person_make_it_forget() -> None:
    backoff = Backoff()
    backoff.crashed(0.0)
    backoff.crashed(200.0)
    assert backoff.wait_s(400.0) == 0.0
    backoff.crashed(400.0)
    assert backoff.wait_s(400.0) == 2.0
    backoff.reset()
    assert backoff.wait_s(400.0) == 0.0


def test_two_load_crashes_of_one_file_put_it_aside() -> None:
    quarantine = Quarantine()
    quarantine.load_crashed("a")
    assert not quarantine.holds("a")
    quarantine.load_crashed("a")
    assert quarantine.holds("a")
    assert not quarantine.holds("b")
    quarantine.release("a")
    assert not quarantine.holds("a")


def test_a_good_load_clears_the_count() -> None:
    quarantine = Quarantine()
    quarantine.load_crashed("a")
    quarantine.loaded("a")
    quarantine.load_crashed("a")
    assert not quarantine.holds("a")
