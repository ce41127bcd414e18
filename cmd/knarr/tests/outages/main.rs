//! A cluster of one node whose processes are killed, one after the other and together, while pods run and clients write.
//! The scenarios run one by one, for each takes the cluster from all others. Needs root:
//! `cargo test --test outages -- --ignored`.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

#[path = "../support/mod.rs"]
mod support;

mod clients;
mod devices;
mod kills;
mod networks;
mod scheduling;
mod twins;

use std::process::ExitCode;
use support::harness::{Pace, Scenario, run_with};

const SCENARIOS: &[Scenario] = &[
    (
        "a_cordoned_node_takes_no_more_pods",
        scheduling::a_cordoned_node_takes_no_more_pods,
    ),
    (
        "a_killed_server_loses_nothing_and_nobody_notices",
        kills::a_killed_server_loses_nothing_and_nobody_notices,
    ),
    (
        "a_killed_agent_is_started_again",
        kills::a_killed_agent_is_started_again,
    ),
    (
        "a_pod_keeps_its_devices_when_the_agent_is_killed",
        devices::a_pod_keeps_its_devices_when_the_agent_is_killed,
    ),
    (
        "a_resize_that_no_agent_heard_of_is_made",
        kills::a_resize_that_no_agent_heard_of_is_made,
    ),
    (
        "a_killed_containerd_is_started_again",
        kills::a_killed_containerd_is_started_again,
    ),
    (
        "two_records_of_one_name_do_not_keep_containerd_down",
        twins::two_records_of_one_name_do_not_keep_containerd_down,
    ),
    (
        "a_record_without_a_sandbox_is_removed",
        twins::a_record_without_a_sandbox_is_removed,
    ),
    (
        "a_flushed_ruleset_is_written_again",
        kills::a_flushed_ruleset_is_written_again,
    ),
    (
        "a_host_port_outlives_the_agent_and_not_its_pod",
        kills::a_host_port_outlives_the_agent_and_not_its_pod,
    ),
    (
        "an_adopted_agent_is_watched_too",
        kills::an_adopted_agent_is_watched_too,
    ),
    (
        "an_update_replaces_server_and_agent_and_no_container",
        kills::an_update_replaces_server_and_agent_and_no_container,
    ),
    (
        "all_killed_at_once_come_back",
        kills::all_killed_at_once_come_back,
    ),
    (
        "a_network_of_another_program_takes_over",
        networks::a_network_of_another_program_takes_over,
    ),
];

fn main() -> ExitCode {
    let flags = [
        "--cni-conf-dir=DIR/net.d",
        "--cni-bin-dir=DIR/cni-bin,/usr/lib/cni",
    ]
    .map(str::to_owned);
    run_with("outages", &flags, SCENARIOS, Pace::OneByOne)
}
