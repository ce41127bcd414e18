//! A cluster of one node with real containers, driven by the real kubectl: what a user does with it. The scenarios run side
//! by side, each in a namespace of its own. Needs root: `cargo test --test node -- --ignored`.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

#[path = "../support/mod.rs"]
mod support;

mod access;
mod autoscaling;
mod commands;
mod debug;
mod figures;
mod hostile;
mod huge_pages;
mod lifecycle;
mod logs;
mod node_requests;
mod pages;
mod probes;
mod pulls;
mod resize;
mod services;
mod settings;
mod volumes;

use std::process::ExitCode;
use support::harness::{Pace, Scenario, run};

const SCENARIOS: &[Scenario] = &[
    // The longest first, so that none is left alone at the end.
    (
        "a_rolling_update_drops_no_request",
        services::a_rolling_update_drops_no_request,
    ),
    (
        "a_deployment_grows_with_its_load",
        autoscaling::a_deployment_grows_with_its_load,
    ),
    (
        "page_workloads_commands_work",
        pages::page_workloads_commands_work,
    ),
    ("page_volumes_commands_work", pages::page_volumes_commands_work),
    ("page_csi_commands_work", pages::page_csi_commands_work),
    (
        "page_node_metrics_commands_work",
        pages::page_node_metrics_commands_work,
    ),
    (
        "page_device_plugins_commands_work",
        pages::page_device_plugins_commands_work,
    ),
    (
        "page_dynamic_resources_commands_work",
        pages::page_dynamic_resources_commands_work,
    ),
    (
        "a_log_that_grows_is_rotated",
        commands::a_log_that_grows_is_rotated,
    ),
    (
        "a_crashing_container_waits_longer_each_time",
        lifecycle::a_crashing_container_waits_longer_each_time,
    ),
    (
        "a_service_is_reached_by_address_port_and_name",
        services::a_service_is_reached_by_address_port_and_name,
    ),
    ("a_deleted_pod_is_replaced", services::a_deleted_pod_is_replaced),
    (
        "the_node_runs_commands_and_shows_logs_and_pages",
        node_requests::the_node_runs_commands_and_shows_logs_and_pages,
    ),
    (
        "a_failed_readiness_probe_takes_traffic_away",
        probes::a_failed_readiness_probe_takes_traffic_away,
    ),
    (
        "a_failed_http_liveness_probe_restarts",
        probes::a_failed_http_liveness_probe_restarts,
    ),
    (
        "a_failed_exec_liveness_probe_restarts",
        probes::a_failed_exec_liveness_probe_restarts,
    ),
    (
        "a_container_given_up_is_asked_no_more",
        probes::a_container_given_up_is_asked_no_more,
    ),
    (
        "a_pod_that_ends_still_says_whether_it_is_ready",
        probes::a_pod_that_ends_still_says_whether_it_is_ready,
    ),
    ("a_grpc_probe_is_asked", probes::a_grpc_probe_is_asked),
    (
        "a_startup_probe_holds_the_others_back",
        probes::a_startup_probe_holds_the_others_back,
    ),
    (
        "a_deletion_ends_what_a_pod_waits_for",
        lifecycle::a_deletion_ends_what_a_pod_waits_for,
    ),
    (
        "a_dead_file_system_stops_no_other_pod",
        volumes::a_dead_file_system_stops_no_other_pod,
    ),
    (
        "a_pod_that_the_node_has_no_place_for_is_refused",
        settings::a_pod_that_the_node_has_no_place_for_is_refused,
    ),
    (
        "a_killed_container_restarts_and_is_counted",
        lifecycle::a_killed_container_restarts_and_is_counted,
    ),
    ("a_job_completes", lifecycle::a_job_completes),
    (
        "init_containers_and_sidecars_run_in_order",
        lifecycle::init_containers_and_sidecars_run_in_order,
    ),
    (
        "hooks_run_before_the_signal",
        lifecycle::hooks_run_before_the_signal,
    ),
    (
        "a_failed_hook_is_told_without_what_it_printed",
        lifecycle::a_failed_hook_is_told_without_what_it_printed,
    ),
    (
        "last_words_stay_when_a_pod_has_ended",
        lifecycle::last_words_stay_when_a_pod_has_ended,
    ),
    (
        "a_container_that_ignores_the_signal_is_killed",
        lifecycle::a_container_that_ignores_the_signal_is_killed,
    ),
    (
        "a_pod_is_run_described_and_read",
        commands::a_pod_is_run_described_and_read,
    ),
    (
        "a_log_is_followed_and_the_previous_one_kept",
        commands::a_log_is_followed_and_the_previous_one_kept,
    ),
    (
        "a_long_line_has_one_time_and_its_length",
        logs::a_long_line_has_one_time_and_its_length,
    ),
    (
        "log_agents_find_logs_where_they_look",
        logs::log_agents_find_logs_where_they_look,
    ),
    (
        "the_node_checks_what_is_asked_of_a_log",
        logs::the_node_checks_what_is_asked_of_a_log,
    ),
    (
        "a_terminal_is_opened_in_a_container",
        commands::a_terminal_is_opened_in_a_container,
    ),
    (
        "a_running_process_is_attached_to",
        commands::a_running_process_is_attached_to,
    ),
    ("a_running_pod_is_debugged", debug::a_running_pod_is_debugged),
    (
        "a_pod_that_does_not_start_is_debugged",
        debug::a_pod_that_does_not_start_is_debugged,
    ),
    ("a_port_is_forwarded", commands::a_port_is_forwarded),
    (
        "a_port_is_forwarded_to_who_speaks_no_spdy",
        commands::a_port_is_forwarded_to_who_speaks_no_spdy,
    ),
    (
        "a_command_that_reads_nothing_tells_its_end",
        commands::a_command_that_reads_nothing_tells_its_end,
    ),
    (
        "files_are_copied_in_and_out",
        commands::files_are_copied_in_and_out,
    ),
    (
        "a_running_pod_is_resized_in_place",
        resize::a_running_pod_is_resized_in_place,
    ),
    (
        "a_resize_waits_for_what_is_in_its_way",
        resize::a_resize_waits_for_what_is_in_its_way,
    ),
    (
        "a_container_that_asks_for_it_is_restarted_to_be_resized",
        resize::a_container_that_asks_for_it_is_restarted_to_be_resized,
    ),
    (
        "a_failed_tcp_probe_takes_readiness_away",
        probes::a_failed_tcp_probe_takes_readiness_away,
    ),
    (
        "a_pod_reaches_the_api_as_itself",
        access::a_pod_reaches_the_api_as_itself,
    ),
    (
        "the_node_answers_those_it_knows_and_who_may",
        access::the_node_answers_those_it_knows_and_who_may,
    ),
    (
        "the_nodes_health_is_told_on_the_loopback_only",
        access::the_nodes_health_is_told_on_the_loopback_only,
    ),
    (
        "what_the_node_keeps_is_nothing_for_others",
        access::what_the_node_keeps_is_nothing_for_others,
    ),
    (
        "the_node_tells_what_is_used_since_when",
        figures::the_node_tells_what_is_used_since_when,
    ),
    (
        "a_pods_settings_reach_its_process",
        settings::a_pods_settings_reach_its_process,
    ),
    (
        "what_a_pod_may_not_is_refused",
        settings::what_a_pod_may_not_is_refused,
    ),
    (
        "a_port_of_the_node_leads_to_a_pod",
        settings::a_port_of_the_node_leads_to_a_pod,
    ),
    (
        "an_image_is_pulled_as_its_policy_says",
        pulls::an_image_is_pulled_as_its_policy_says,
    ),
    (
        "an_image_put_on_the_node_stays_while_others_ask_for_it",
        pulls::an_image_put_on_the_node_stays_while_others_ask_for_it,
    ),
    (
        "an_image_that_does_not_come_is_asked_for_again_later",
        pulls::an_image_that_does_not_come_is_asked_for_again_later,
    ),
    (
        "a_private_image_wants_the_pods_secret",
        pulls::a_private_image_wants_the_pods_secret,
    ),
    (
        "huge_pages_are_counted_and_mounted",
        huge_pages::huge_pages_are_counted_and_mounted,
    ),
    (
        "volumes_of_every_kind_hold_what_they_say",
        volumes::volumes_of_every_kind_hold_what_they_say,
    ),
    (
        "stateful_sets_keep_their_volumes_of_the_default_class",
        volumes::stateful_sets_keep_their_volumes_of_the_default_class,
    ),
    (
        "ephemeral_volumes_go_with_their_pods",
        volumes::ephemeral_volumes_go_with_their_pods,
    ),
    (
        "claims_of_what_their_class_cannot_give_say_why",
        volumes::claims_of_what_their_class_cannot_give_say_why,
    ),
    (
        "claims_are_bound_and_their_volumes_outlive_pods",
        volumes::claims_are_bound_and_their_volumes_outlive_pods,
    ),
    (
        "a_running_pod_sees_changed_objects",
        volumes::a_running_pod_sees_changed_objects,
    ),
    (
        "a_deleted_object_keeps_no_container_from_starting",
        volumes::a_deleted_object_keeps_no_container_from_starting,
    ),
    (
        "a_volume_deeper_than_any_stack_goes_with_its_pod",
        volumes::a_volume_deeper_than_any_stack_goes_with_its_pod,
    ),
    (
        "a_fork_bomb_is_bounded_by_its_pod",
        hostile::a_fork_bomb_is_bounded_by_its_pod,
    ),
    (
        "memory_that_runs_out_ends_the_least_promised_first",
        hostile::memory_that_runs_out_ends_the_least_promised_first,
    ),
    (
        "a_users_followers_leave_places_to_others",
        hostile::a_users_followers_leave_places_to_others,
    ),
    (
        "a_path_that_names_no_file_is_told_once_in_a_while",
        hostile::a_path_that_names_no_file_is_told_once_in_a_while,
    ),
    (
        "a_sub_path_cannot_leave_its_volume",
        volumes::a_sub_path_cannot_leave_its_volume,
    ),
];

fn main() -> ExitCode {
    let _pages = huge_pages::KernelPages::keep();
    run("node", SCENARIOS, Pace::Together)
}
