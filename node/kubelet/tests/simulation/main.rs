//! Simulation of a node: pods are created, crash, hang and are deleted while agent, container runtime and API fail.
//!
//! The agent is the product's, on a model of containerd (decision 0041), of mounts and of control groups ([`machine`]), of the table of [`host_ports`],
//! with a real API server behind a faulty transport ([`simulated_node`]). A [`scenario`] is a seeded sequence of actions of users
//! and faults; [`rules`] has the invariants, and the conditions of a converged node.
//! `KNARR_SEEDS` says which seeds run: `1000`, `5000..6000`, or one by `KNARR_SEED=10`. A failing run names its seed.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test, helpers included; its numbers are small"
)]

mod away;
mod certificates;
mod critical;
mod csi;
mod devices;
mod dra;
mod env_files;
mod eviction;
mod greedy;
mod host_ports;
mod late_sidecar;
mod machine;
mod many_at_once;
mod model_csi;
mod model_dra;
mod model_kernel_log;
mod model_logind;
mod model_plugins;
mod oom_events;
mod out_of_memory;
mod panics;
mod pods;
mod rules;
mod runtime_restart;
mod scenario;
mod shutdown;
mod simulated_node;
mod static_pods;
mod unread;
mod volumes;

use machinery_runtime::seeds;

/// Seeds of a plain run.
const DEFAULT_SEEDS: u64 = 12;

#[test]
fn node_runs_what_it_is_asked_to_and_leaves_nothing_behind() {
    for seed in seeds(DEFAULT_SEEDS) {
        scenario::run_seed(seed);
    }
}

#[test]
fn node_does_the_same_again_with_the_same_seed() {
    assert_eq!(scenario::run_seed(4), scenario::run_seed(4));
}

#[test]
fn trust_bundles_are_shown_in_volumes_and_replaced() {
    for seed in seeds(2) {
        certificates::run_bundles(seed);
    }
}

#[test]
fn pod_certificates_are_issued_renewed_and_denied() {
    for seed in seeds(2) {
        certificates::run_certificates(seed);
    }
}

#[test]
fn shutdown_ends_pods_by_priority_and_gives_the_lock_back() {
    for seed in seeds(3) {
        shutdown::run_shutdown(seed);
    }
}

#[test]
fn shutdown_that_is_cancelled_leaves_the_other_pods() {
    for seed in seeds(3) {
        shutdown::run_cancelled(seed);
    }
}

#[test]
fn critical_pod_finds_room_on_a_full_node() {
    for seed in seeds(3) {
        critical::run_seed(seed);
    }
}

#[test]
fn sidecar_whose_turn_comes_late_has_two_seconds_to_end() {
    for seed in seeds(3) {
        late_sidecar::run_seed(seed);
    }
}

#[test]
fn oom_kill_of_the_machine_is_an_event_once() {
    for seed in seeds(4) {
        oom_events::run_seed(seed);
    }
}

#[test]
fn container_killed_for_memory_is_said_to_be() {
    for seed in seeds(6) {
        out_of_memory::run_seed(seed);
    }
}

#[test]
fn pods_that_want_too_many_objects_or_volumes_are_told_and_others_run() {
    for seed in seeds(2) {
        greedy::run_seed(seed);
    }
}

#[test]
fn pod_whose_config_map_is_deleted_goes_on_with_what_it_has() {
    for seed in seeds(3) {
        volumes::run_seed(seed);
    }
}

#[test]
fn container_takes_variables_from_a_file_that_another_wrote() {
    for seed in seeds(3) {
        env_files::run_seed(seed);
    }
}

#[test]
fn pods_that_start_together_start_so_many_sandboxes_at_once() {
    for seed in seeds(1) {
        many_at_once::run_seed(seed);
    }
}

#[test]
fn agent_that_starts_while_the_api_is_away_keeps_its_pods_going() {
    for seed in seeds(6) {
        away::run_running(seed);
    }
}

#[test]
fn agent_that_starts_while_the_api_is_away_starts_nothing_that_was_ending() {
    for seed in seeds(6) {
        away::run_ending(seed);
    }
}

#[test]
fn container_that_ended_with_its_runtime_is_seen_when_that_answers() {
    for seed in seeds(6) {
        runtime_restart::run_seed(seed);
    }
}

#[test]
fn node_short_of_memory_evicts_those_above_their_requests_one_at_a_time() {
    for seed in seeds(3) {
        eviction::run_memory(seed);
    }
}

#[test]
fn node_short_of_room_removes_what_nobody_uses_before_a_pod_ends() {
    for seed in seeds(3) {
        eviction::run_disk(seed);
    }
}

#[test]
fn static_pods_run_without_an_api_server_and_show_in_it() {
    for seed in seeds(3) {
        static_pods::run_seed(seed);
    }
}

#[test]
fn pods_that_cannot_be_decoded_run_on_after_a_restart_and_end_when_deleted() {
    for seed in seeds(3) {
        unread::run_seed(seed);
    }
}

#[test]
fn mirror_that_cannot_be_decoded_is_written_once_for_each_change() {
    for seed in seeds(3) {
        unread::run_mirror(seed);
    }
}

#[test]
fn devices_are_given_to_pods_and_kept_across_restarts() {
    for seed in seeds(3) {
        devices::run_pods(seed);
    }
}

#[test]
fn devices_of_the_node_are_those_of_its_plugins() {
    for seed in seeds(3) {
        devices::run_numbers(seed);
    }
}

#[test]
fn device_plugin_that_hangs_makes_pods_wait_and_has_none_refused() {
    for seed in seeds(3) {
        devices::run_hanging(seed);
    }
}

#[test]
fn devices_that_are_ill_after_a_restart_fail_only_pods_that_need_them() {
    for seed in seeds(3) {
        devices::run_ill(seed);
    }
}

#[test]
fn volumes_of_drivers_are_shown_and_taken_away_across_restarts() {
    for seed in seeds(3) {
        csi::run_life(seed);
    }
}

#[test]
fn volumes_of_drivers_are_waited_for_until_they_are_attached() {
    for seed in seeds(3) {
        csi::run_attached(seed);
    }
}

#[test]
fn driver_that_hangs_holds_up_its_own_pods_alone() {
    for seed in seeds(3) {
        csi::run_hanging(seed);
    }
}

#[test]
fn volumes_in_pods_come_with_what_their_driver_asks_for() {
    for seed in seeds(3) {
        csi::run_inline(seed);
    }
}

#[test]
fn claims_are_prepared_and_taken_back_across_restarts() {
    for seed in seeds(3) {
        dra::run_life(seed);
    }
}

#[test]
fn dra_driver_that_hangs_holds_up_its_own_pods_alone() {
    for seed in seeds(3) {
        dra::run_hanging(seed);
    }
}

#[test]
fn pod_is_over_once_its_claims_are_taken_back() {
    for seed in seeds(3) {
        dra::run_exit(seed);
    }
}

#[test]
fn container_that_cannot_be_killed_keeps_its_claims() {
    for seed in seeds(3) {
        dra::run_survivor(seed);
    }
}

#[test]
fn containers_run_with_their_devices_whatever_happens_to_driver_and_agent() {
    for seed in seeds(6) {
        dra::run_storm(seed);
    }
}
