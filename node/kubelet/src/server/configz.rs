//! `/configz`: the configuration in upstream's form, `KubeletConfiguration` of `kubelet.config.k8s.io/v1beta1`. Fields that the
//! agent has no setting for say what it does ([`KubeletConfig::kept_fields`] and constants of this crate).

use std::time::Duration;

use machinery_meta::{Quantity, go_duration};
use serde_json::{Map, Value, json};

use super::auth;
use super::streaming::IDLE_TIMEOUT;
use crate::config::{KubeletConfig, SwapBehavior};
use crate::eviction::thresholds::Thresholds;
use crate::node::facts::NodeFacts;
use crate::node::reserve::{Amounts, amount_text};
use crate::node::{lease, status};
use crate::shutdown::ShutdownConfig;
use crate::static_pods::url::{DEFAULT_PERIOD, StaticPodUrl};

/// The whole answer.
pub(super) fn configz(config: &KubeletConfig, facts: &NodeFacts) -> Value {
    let groups = [
        serving(config),
        access(config),
        node(config),
        pods(config, facts),
        managers(config),
        images(config),
        eviction(config),
        shutdown(&config.shutdown),
    ];
    let own = groups.into_iter().flatten();
    let mut fields = config.kept_fields.clone();
    fields.retain(|_, value| !value.is_null());
    for (name, value) in own {
        join(fields.entry(name).or_insert(Value::Null), value);
    }
    json!({ "kubeletconfig": fields })
}

/// Puts a value in the place of another; fields of objects one by one.
fn join(place: &mut Value, value: Value) {
    match (place, value) {
        (Value::Object(own), Value::Object(fields)) => {
            for (name, value) in fields {
                join(own.entry(name).or_insert(Value::Null), value);
            }
        }
        (place, value) => *place = value,
    }
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(mut map) => {
            // A setting that is not given is absent, as upstream's `omitempty`.
            map.retain(|_, value| !value.is_null());
            map
        }
        _ => Map::new(),
    }
}

fn serving(config: &KubeletConfig) -> Map<String, Value> {
    let any = if config.node_ip.is_ipv4() { "0.0.0.0" } else { "::" };
    let (certificate, key) = config.tls.clone().unzip();
    fields(json!({
        "address": any,
        "port": config.port,
        "tlsCertFile": certificate,
        "tlsPrivateKeyFile": key,
        "rotateCertificates": config.tls_awaited,
        "serverTLSBootstrap": config.tls_awaited.then_some(true),
        "enableSystemLogHandler": config.system_logs.is_served,
        "enableSystemLogQuery": config.system_logs.is_queried,
        "healthzPort": config.healthz_port.unwrap_or(0),
        "streamingConnectionIdleTimeout": go_duration::write(IDLE_TIMEOUT),
    }))
}

fn access(config: &KubeletConfig) -> Map<String, Value> {
    fields(json!({
        "authentication": {
            "x509": fields(json!({"clientCAFile": config.client_ca})),
            "webhook": {"cacheTTL": go_duration::write(auth::TOKEN_AGE_MAX)},
        },
        "authorization": {
            "webhook": {
                "cacheAuthorizedTTL": go_duration::write(auth::ALLOWED_AGE_MAX),
                "cacheUnauthorizedTTL": go_duration::write(auth::DENIED_AGE_MAX),
            },
        },
    }))
}

fn node(config: &KubeletConfig) -> Map<String, Value> {
    let taints = config
        .register_with_taints
        .iter()
        .map(|taint| json!(taint.to_taint()));
    let taints: Vec<Value> = taints.collect();
    fields(json!({
        "registerNode": config.register_node,
        "registerWithTaints": (!taints.is_empty()).then_some(taints),
        "nodeStatusUpdateFrequency": go_duration::write(status::LOOK_AFTER),
        "nodeStatusReportFrequency": go_duration::write(status::WRITE_AFTER),
        "nodeStatusMaxImages": status::IMAGES_MAX,
        "nodeLeaseDurationSeconds": lease::DURATION_SECONDS,
        "containerRuntimeEndpoint": format!("unix://{}", config.container_runtime_endpoint.display()),
        "kubeReserved": reserved(&config.reserve.kube),
        "systemReserved": reserved(&config.reserve.system),
        "kubeReservedCgroup": named(&config.reserve.kube_cgroup),
        "systemReservedCgroup": named(&config.reserve.system_cgroup),
        "enforceNodeAllocatable": config.reserve.enforce,
        "cgroupRoot": config.cgroup_root,
        "cgroupDriver": config.cgroup_driver.name(),
        "memorySwap": swap(config),
    }))
}

/// Empty where nothing was chosen, as upstream's.
fn swap(config: &KubeletConfig) -> Value {
    match config.swap_behavior {
        SwapBehavior::NoSwap => json!({}),
        chosen => json!({"swapBehavior": chosen.name()}),
    }
}

fn pods(config: &KubeletConfig, facts: &NodeFacts) -> Map<String, Value> {
    let log_bytes = i64::try_from(config.container_log_max_bytes).unwrap_or(i64::MAX);
    let addresses: Vec<String> = config.cluster_dns.iter().map(ToString::to_string).collect();
    fields(json!({
        "staticPodPath": config.static_pods.as_ref().map(|source| &source.path),
        "staticPodURL": config.static_pod_url.as_ref().map(StaticPodUrl::shown),
        "staticPodURLHeader": config.static_pod_url.as_ref().and_then(masked_headers),
        "httpCheckFrequency": go_duration::write(url_period(config)),
        "clusterDomain": config.cluster_domain,
        "clusterDNS": addresses,
        "resolvConf": config.resolv_conf,
        "maxPods": config.max_pods,
        "podPidsLimit": config.pod_pids(&facts.machine).unwrap_or(-1),
        "podLogsDir": config.logs_folder(),
        "containerLogMaxSize": Quantity::from_bytes(log_bytes).to_string(),
        "containerLogMaxFiles": config.container_log_max_files,
    }))
}

/// Names of the headers, with upstream's word in place of their values.
fn masked_headers(source: &StaticPodUrl) -> Option<Value> {
    let names = source.headers.iter();
    let masked: Map<String, Value> = names
        .map(|(name, _)| (name.clone(), json!(["<masked>"])))
        .collect();
    (!masked.is_empty()).then_some(Value::Object(masked))
}

fn url_period(config: &KubeletConfig) -> Duration {
    let own = config.static_pod_url.as_ref();
    own.map_or(DEFAULT_PERIOD, |source| source.period)
}

fn managers(config: &KubeletConfig) -> Map<String, Value> {
    let own = &config.resource_managers;
    fields(json!({
        "cpuManagerPolicy": own.cpu_policy.name(),
        "cpuManagerPolicyOptions": (!own.cpu_options.is_empty()).then_some(&own.cpu_options),
        "cpuManagerReconcilePeriod": go_duration::write(own.cpu_reconcile_period),
        "reservedSystemCPUs": named(&own.reserved_cpus),
        "memoryManagerPolicy": own.memory_policy.name(),
        "reservedMemory": (!own.reserved_memory.is_empty()).then(|| reserved_memory(config)),
        "topologyManagerPolicy": own.topology_policy.name(),
        "topologyManagerScope": own.topology_scope.name(),
        "topologyManagerPolicyOptions": (!own.topology_options.is_empty()).then_some(&own.topology_options),
    }))
}

fn reserved_memory(config: &KubeletConfig) -> Vec<Value> {
    let all = config.resource_managers.reserved_memory.iter();
    all.map(|own| json!({"numaNode": own.numa_node, "limits": own.limits}))
        .collect()
}

fn images(config: &KubeletConfig) -> Map<String, Value> {
    let images = &config.image_collection;
    fields(json!({
        "imageMinimumGCAge": go_duration::write(images.minimum_age),
        "imageMaximumGCAge": go_duration::write(images.maximum_age),
        "imageGCHighThresholdPercent": images.high_threshold_percent,
        "imageGCLowThresholdPercent": images.low_threshold_percent,
    }))
}

fn shutdown(config: &ShutdownConfig) -> Map<String, Value> {
    let periods = config.by_priority.iter();
    let periods: Vec<Value> = periods
        .map(|own| json!({"priority": own.priority, "shutdownGracePeriodSeconds": own.seconds}))
        .collect();
    fields(json!({
        "shutdownGracePeriod": go_duration::write(config.grace_period),
        "shutdownGracePeriodCriticalPods": go_duration::write(config.critical_pods),
        "shutdownGracePeriodByPodPriority": (!periods.is_empty()).then_some(periods),
    }))
}

fn eviction(config: &KubeletConfig) -> Map<String, Value> {
    let eviction = &config.eviction;
    let periods = eviction.soft_grace_period.iter();
    let periods: Map<String, Value> = periods
        .map(|(signal, time)| (signal.clone(), json!(go_duration::write(*time))))
        .collect();
    fields(json!({
        "evictionHard": levels(&config.reserve.eviction_hard),
        "evictionSoft": levels(&eviction.soft),
        "evictionSoftGracePeriod": (!periods.is_empty()).then_some(periods),
        "evictionMinimumReclaim": levels(&eviction.minimum_reclaim),
        "evictionPressureTransitionPeriod": go_duration::write(eviction.pressure_transition_period),
        "evictionMaxPodGracePeriod": eviction.max_pod_grace_period_seconds,
    }))
}

fn named(name: &str) -> Option<&str> {
    Some(name).filter(|name| !name.is_empty())
}

fn reserved(amounts: &Amounts) -> Option<Map<String, Value>> {
    let texts = amounts
        .iter()
        .map(|(name, amount)| (name.clone(), json!(amount_text(name, *amount))));
    Some(texts.collect()).filter(|map: &Map<String, Value>| !map.is_empty())
}

fn levels(thresholds: &Thresholds) -> Option<Map<String, Value>> {
    let texts = thresholds
        .iter()
        .map(|(signal, level)| (signal.clone(), json!(level.to_string())));
    Some(texts.collect()).filter(|map: &Map<String, Value>| !map.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_sys::machine::Machine;

    #[test]
    fn configuration_is_shown_in_upstreams_form() {
        let mut config = KubeletConfig::for_data_dir("/data".into());
        config.cluster_dns = vec![[10, 96, 0, 10].into()];
        config.reserve.kube = [("cpu".to_owned(), 200), ("memory".to_owned(), 1 << 30)].into();
        config.register_with_taints = vec!["a=b:NoSchedule".parse().unwrap()];
        config.static_pod_url = Some(StaticPodUrl {
            url: "http://user:secret@127.0.0.1/pods".to_owned(),
            headers: vec![("token".to_owned(), "secret".to_owned())],
            period: Duration::from_secs(5),
            decode: |_| Err(String::new()),
        });
        let facts = NodeFacts {
            machine: Machine::default(),
            storage_bytes: 0,
            runtime_version: String::new(),
            supplemental_groups_policy: false,
        };
        let found = &configz(&config, &facts)["kubeletconfig"];
        for (field, expected) in [
            ("/authentication/webhook/cacheTTL", json!("2m0s")),
            ("/authentication/x509", json!({})),
            ("/authorization/webhook/cacheUnauthorizedTTL", json!("30s")),
            ("/streamingConnectionIdleTimeout", json!("4h0m0s")),
            ("/nodeStatusReportFrequency", json!("5m0s")),
            ("/nodeLeaseDurationSeconds", json!(40)),
            ("/staticPodURL", json!("http://127.0.0.1/pods")),
            ("/staticPodURLHeader", json!({"token": ["<masked>"]})),
            ("/httpCheckFrequency", json!("5s")),
            ("/clusterDNS", json!(["10.96.0.10"])),
            ("/kubeReserved", json!({"cpu": "200m", "memory": "1048576Ki"})),
            ("/evictionHard/memory.available", json!("100Mi")),
            ("/evictionHard/nodefs.inodesFree", json!("5%")),
            (
                "/registerWithTaints",
                json!([{"key": "a", "value": "b", "effect": "NoSchedule"}]),
            ),
            ("/containerLogMaxSize", json!("10Mi")),
            ("/maxPods", json!(110)),
            ("/podPidsLimit", json!(4096)),
        ] {
            assert_eq!(found.pointer(field), Some(&expected), "{field}");
        }
        for absent in ["systemReserved", "evictionSoft", "staticPodPath", "tlsCertFile"] {
            assert_eq!(found.get(absent), None, "{absent}");
        }
    }
}
