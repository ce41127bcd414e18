//! `/debug/api_priority_and_fairness/*`: levels, queues and requests as text, in upstream's columns.

use super::FlowControl;
use super::controller::LevelState;
use super::priority_level::Ticket;
use super::queue_set::Request;
use jiff::{SignedDuration, Timestamp};
use machinery_meta::go_duration;
use std::time::Duration;

const ROOT: &str = "/debug/api_priority_and_fairness/";

/// The text of one of the paths.
pub(crate) fn answer(control: &FlowControl, path: &str, query: &str, now: Timestamp) -> Option<String> {
    let rows = match path.strip_prefix(ROOT)? {
        "dump_priority_levels" => levels(control),
        "dump_queues" => queues(control),
        "dump_requests" => {
            let details = query
                .split('&')
                .filter_map(|pair| pair.strip_prefix("includeRequestDetails="));
            let with_details = details.into_iter().any(|value| !value.is_empty());
            requests(control, with_details, now)
        }
        _ => return None,
    };
    Some(aligned(&rows))
}

type Row = Vec<String>;

fn head(names: &[&str]) -> Row {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Columns as wide as their widest cell, as Go's `tabwriter` sets them.
fn aligned(rows: &[Row]) -> String {
    const LEAST: usize = 8;
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        // The comma and a space belong to the cell.
        cells.map(|cell| cell.len() + 2).max().unwrap_or(0).max(LEAST)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            if at + 1 == row.len() {
                text.push_str(cell);
            } else {
                text.push_str(&format!("{:width$}", format!("{cell},"), width = widths[at]));
            }
        }
        text.push('\n');
    }
    text
}

fn levels(control: &FlowControl) -> Vec<Row> {
    let mut rows = vec![head(&[
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ])];
    let row = |state: &LevelState| {
        let requests = state.level.requests.lock();
        let totals = requests.totals();
        let active = requests
            .queues()
            .iter()
            .filter(|queue| !queue.waiting.is_empty())
            .count();
        vec![
            state.level.name.clone(),
            active.to_string(),
            requests.is_idle().to_string(),
            state.quiescing.to_string(),
            totals.waiting.to_string(),
            totals.executing.to_string(),
            totals.dispatched.to_string(),
            totals.rejected.to_string(),
            totals.timed_out.to_string(),
            totals.cancelled.to_string(),
        ]
    };
    rows.extend(control.with_levels(|levels| levels.values().map(row).collect::<Vec<_>>()));
    rows
}

fn queues(control: &FlowControl) -> Vec<Row> {
    let mut rows = vec![head(&[
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ])];
    let of_level = |state: &LevelState| {
        let requests = state.level.requests.lock();
        let queues = requests.queues().iter().enumerate().map(|(index, queue)| {
            let waiting = queue.waiting.keys().filter_map(|id| requests.requests().get(id));
            let initial: u32 = waiting.map(|request| request.estimate.initial_seats).sum();
            vec![
                state.level.name.clone(),
                index.to_string(),
                queue.waiting.len().to_string(),
                queue.executing.to_string(),
                queue.seats_in_use.to_string(),
                format!("{:.8}ss", queue.next_dispatch_r),
                initial.to_string(),
                queue.waiting_seats.to_string(),
                format!("{:.8}ss", queue.waiting_work),
            ]
        });
        queues.collect::<Vec<_>>()
    };
    rows.extend(control.with_levels(|levels| levels.values().flat_map(of_level).collect::<Vec<_>>()));
    rows
}

fn requests(control: &FlowControl, with_details: bool, now: Timestamp) -> Vec<Row> {
    let mut columns = head(&[
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ]);
    if with_details {
        columns.extend(head(&[
            "UserName",
            "Verb",
            "APIPath",
            "Namespace",
            "Name",
            "APIVersion",
            "Resource",
            "SubResource",
        ]));
    }
    let mut rows = vec![columns];
    let clock = Clock {
        now,
        monotonic: control.monotonic(),
    };
    let of_level = |state: &LevelState| {
        let requests = state.level.requests.lock();
        let mut all: Vec<_> = requests
            .requests()
            .iter()
            .filter(|(_, request)| !request.finished)
            .collect();
        // Queue by queue, those that wait first and in their order.
        all.sort_by_key(|(id, request)| (request.queue, request.start.is_some(), **id));
        let row = |(id, request): (&u64, &Request<Ticket>)| {
            let queue = request.queue.map(|queue| &requests.queues()[queue]);
            let place = queue.and_then(|queue| queue.waiting.keys().position(|own| own == id));
            let mut row = vec![
                state.level.name.clone(),
                request.kept.schema.object.metadata.name.clone(),
                request
                    .queue
                    .map_or_else(|| "-1".to_owned(), |queue| queue.to_string()),
                place.map_or_else(|| "-1".to_owned(), |place| place.to_string()),
                request.kept.flow().to_owned(),
                clock.at(Some(request.arrival)),
                request.estimate.initial_seats.to_string(),
                request.estimate.final_seats.to_string(),
                go_duration::write(request.estimate.additional_latency),
                clock.at(request.start),
            ];
            if with_details {
                row.extend(details(&request.kept));
            }
            row
        };
        all.into_iter().map(row).collect::<Vec<_>>()
    };
    rows.extend(control.with_levels(|levels| levels.values().flat_map(of_level).collect::<Vec<_>>()));
    rows
}

fn details(ticket: &Ticket) -> [String; 8] {
    let (user, info) = (&ticket.digest.user, &ticket.digest.info);
    let version = match info.api_group.as_str() {
        "" => info.api_version.clone(),
        group => format!("{group}/{}", info.api_version),
    };
    [
        user.name.clone(),
        info.verb.clone(),
        info.path.clone(),
        info.namespace.clone(),
        info.name.clone(),
        version,
        info.resource.clone(),
        info.subresource.clone(),
    ]
}

/// Moments of the monotonic clock as time of day.
struct Clock {
    now: Timestamp,
    monotonic: Duration,
}

impl Clock {
    fn at(&self, moment: Option<Duration>) -> String {
        let Some(moment) = moment else {
            return "0001-01-01T00:00:00Z".to_owned();
        };
        let ago = SignedDuration::try_from(self.monotonic.saturating_sub(moment)).unwrap_or_default();
        (self.now - ago).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dump_columns_are_aligned() {
        let rows = [head(&["Name", "Index"]), head(&["a-long-name", "1"])];
        assert_eq!(aligned(&rows), "Name,        Index\na-long-name, 1\n");
    }
}
