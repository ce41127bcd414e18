//! API priority and fairness: which requests are executed at once, and in what order the others wait.
//!
//! A request is classified by the first [`FlowSchema`](objects) that matches it, which names a priority level and the flow
//! within it. The priority level has seats; the request takes as many as its work is [estimated](work_estimate) to need.
//! Where there are too few it waits in one of the level's queues ([`queue_set`]): the flow's hash deals it a hand of queues
//! ([`shuffle_sharding`]), of which it takes the one with the least work, and the queues are served fairly in virtual time.
//! A full queue rejects. Every ten seconds the levels' limits follow their demand ([`seat_demand`], [`concurrency`]): a level
//! lends seats that it does not use.
//!
//! [`controller`] makes all this from the stored FlowSchemas and PriorityLevelConfigurations, [`bootstrap`] keeps those that
//! every cluster has. Algorithms, defaults and names are upstream's (`k8s.io/apiserver/pkg/util/flowcontrol`). All but
//! [`priority_level`] and [`controller`] is free of clocks and tasks.

pub(crate) mod bootstrap;
mod concurrency;
pub(crate) mod controller;
mod dropped_requests;
pub(crate) mod dump;
mod flow_schema;
pub(crate) mod metrics;
pub(crate) mod objects;
pub(crate) mod priority_level;
mod queue_set;
mod seat_demand;
mod shuffle_sharding;
mod timing_histogram;
pub(crate) mod utilization;
mod watch_tracker;
pub(crate) mod work_estimate;

pub(crate) use controller::FlowControl;
pub(crate) use priority_level::{Seats, Start};
