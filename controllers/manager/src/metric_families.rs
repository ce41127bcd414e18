//! The list of upstream's families that controllers have, compared with those that they request at their start.

use crate::all::rows;
use crate::config::Config;
use crate::context::ControllerContext;
use crate::manager::{ControllerManager, Selection};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use kube::client::Body;
use machinery_client::{Client, Informers};
use machinery_runtime::Runtime;
use machinery_runtime::metrics::Described;
use std::convert::Infallible;
use std::sync::Arc;

/// Every controller, at a server that never answers.
fn begun(runtime: &Runtime) -> ControllerManager {
    let service = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let client = Client::in_process(service, runtime.clone());
    let informers = Informers::new(client.clone(), runtime.clone());
    let config = Config {
        root_ca: "authority".to_owned(),
        ..Config::default()
    };
    let context = ControllerContext::new(
        runtime.clone(),
        informers,
        Arc::new(move |_| client.clone()),
        config,
    )
    .with_token_signer(Arc::new(|_| Ok(String::new())))
    .with_certificate_signer(Arc::new(|_| Ok(String::new())));
    ControllerManager::start(&context, &Selection::Default)
}

/// A family as the list has it.
fn line(own: &Described) -> String {
    let (family, mut labels) = (own.family, own.family.labels.to_vec());
    labels.sort_unstable();
    let (stability, help) = family.help[1..].split_once("] ").unwrap();
    let bounds = family.buckets.bounds();
    let buckets: Vec<_> = bounds.iter().map(|bound| format!("{bound:.9}")).collect();
    let buckets = if own.kind == "histogram" {
        buckets.join(",")
    } else {
        String::new()
    };
    let help = help.replace('\n', "\\n").replace('\t', "\\t");
    [
        family.name,
        own.kind,
        &labels.join(","),
        &buckets,
        stability,
        &help,
    ]
    .join("\t")
}

/// A line of the list with buckets as we write them.
fn listed(line: &str) -> String {
    let mut fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
    let bounds = fields[3].split(',').filter_map(|bound| bound.parse::<f64>().ok());
    let bounds: Vec<_> = bounds.map(|bound| format!("{bound:.9}")).collect();
    fields[3] = bounds.join(",");
    fields.join("\t")
}

#[tokio::test]
async fn metric_families_of_controllers_are_upstreams() {
    let scope = Runtime::real().child_scope();
    let _manager = begun(scope.runtime());
    let described = scope.runtime().metrics().described();
    // Families of our own say so by their names.
    let upstreams = described
        .iter()
        .filter(|own| !own.family.name.starts_with("knarr_"));
    let own: Vec<_> = upstreams.map(line).collect();
    let upstream = include_str!("../testdata/metrics.tsv").lines();
    let upstream: Vec<_> = upstream
        .filter(|line| !line.starts_with('#'))
        .map(listed)
        .collect();
    for (own, upstream) in own.iter().zip(&upstream) {
        assert_eq!(own, upstream);
    }
    assert_eq!(own.len(), upstream.len());
}

#[tokio::test]
async fn metrics_of_every_queue_are_there_from_the_start() {
    let scope = Runtime::real().child_scope();
    let _manager = begun(scope.runtime());
    let families = scope.runtime().metrics().gather();
    for family in families.iter().filter(|own| own.name().starts_with("workqueue_")) {
        let of = |row: &str| {
            let mut series = family.get_metric().iter();
            series.any(|own| own.get_label()[0].value() == row)
        };
        for row in rows() {
            assert!(of(row.queue), "{} of {}", family.name(), row.name);
        }
    }
}
