//! Upstream's tables, and what differs from upstream.

use super::*;
use crate::plugins::tests::block_on;
use machinery_meta::UserInfo;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Cases of upstream's `admission_test.go`: limits as `type=burst/cacheSize`, all with one event per second, then requests. `!` is
/// a request that is refused, `+` one that comes a second later, `other` one that is no event; `field=value` says what is set.
const CASES: &str = "
server=3 | event
server=3 | other
server=3 | event event event !event
server=3 | event event event other
server=3 | event event other event
server=3 | event event event !event +event
server=100 namespace=3/10 | namespace=A namespace=A namespace=A !namespace=A
server=100 namespace=3/10 | namespace=A namespace=A namespace=A namespace=B
server=100 namespace=3/10 | namespace=A namespace=A namespace=B namespace=A
server=100 namespace=3/10 | namespace=A namespace=A namespace=A !namespace=A +namespace=A
server=100 namespace=3/10 | namespace=A namespace=A namespace=A namespace=B !namespace=A
server=100 namespace=3/2 | namespace=A namespace=A namespace=B namespace=B namespace=B namespace=A !namespace=B !namespace=A namespace=C !namespace=A namespace=B
server=100 source=3/10 | component=A component=A component=A !component=A
server=100 source=3/10 | component=A component=A component=A component=B
server=100 source=3/10 | component=A component=A component=B component=A
server=100 source=3/10 | component=A component=A component=A !component=A +component=A
server=100 source=3/10 | component=A component=A component=A component=B !component=A
server=100 source=3/2 | component=A component=A component=B component=B component=B component=A !component=B !component=A component=C !component=A component=B
server=100 source=1/10 | host=A !host=A host=B
server=100 source=1/10 | involved.kind=A !involved.kind=A involved.kind=B
server=100 source=1/10 | involved.namespace=A !involved.namespace=A involved.namespace=B
server=100 source=1/10 | involved.name=A !involved.name=A involved.name=B
server=100 source=1/10 | involved.uid=A !involved.uid=A involved.uid=B
server=100 source=1/10 | involved.apiVersion=A !involved.apiVersion=A involved.apiVersion=B
user=3/10 | user=A user=A user=A !user=A
 | user=A user=A user=A user=B
 | user=A user=A user=B user=A
";

struct Asked {
    plugin: EventRateLimit,
    now: Arc<Mutex<Duration>>,
}

impl Asked {
    fn new(limits: &[Limit]) -> Self {
        let now: Arc<Mutex<Duration>> = Arc::default();
        let clock = Arc::clone(&now);
        let written: Vec<Value> = limits
            .iter()
            .map(|limit| {
                let limit_type = limit.limit_type.to_string();
                json!({"type": limit_type, "qps": limit.qps, "burst": limit.burst, "cacheSize": limit.cache_size})
            })
            .collect();
        let configuration = match limits {
            // None of upstream's files has no limits; its table has.
            [] => Configuration::none(),
            _ => Configuration::parse(Some(&configuration(&json!(written)))).unwrap(),
        };
        Self {
            plugin: EventRateLimit::new(&configuration, Arc::new(move || *clock.lock())),
            now,
        }
    }

    fn ask(&self, request: &Request<'_>, event: &Value) -> Result<(), AdmissionError> {
        if !self.plugin.handles(request) {
            return Ok(());
        }
        let tree = Tree::from_json(&event.to_string()).unwrap();
        block_on(self.plugin.validate(request, Some(&tree), None))
    }

    /// A request of the table.
    fn ask_for(&self, what: &str) -> Result<(), AdmissionError> {
        let (field, value) = what.split_once('=').unwrap_or((what, ""));
        let event = match field.split_once('.') {
            Some((_, field)) => json!({"involvedObject": {field: value}}),
            None if matches!(field, "component" | "host") => json!({"source": {field: value}}),
            None => json!({}),
        };
        let user = UserInfo::named(if field == "user" { value } else { "" }, [""; 0]);
        let namespace = if field == "namespace" { value } else { "" };
        let kind = if field == "other" { "NonEvent" } else { "Event" };
        self.ask(&request(&user, namespace, kind), &event)
    }
}

fn request<'a>(user: &'a UserInfo, namespace: &'a str, kind: &'a str) -> Request<'a> {
    Request {
        user,
        operation: Operation::Create,
        group: "",
        kind,
        resource: "events",
        subresource: "",
        namespace,
        name: "e",
        dry_run: false,
        remarks: &crate::Unheard,
        host: None,
        reinvocation: None,
    }
}

fn configuration(limits: &Value) -> Value {
    json!({"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration", "limits": limits})
}

fn limit(text: &str) -> Limit {
    let (limit_type, numbers) = text.split_once('=').unwrap();
    let (burst, cache_size) = numbers.split_once('/').unwrap_or((numbers, "0"));
    Limit {
        limit_type: match limit_type {
            "server" => LimitType::Server,
            "namespace" => LimitType::Namespace,
            "user" => LimitType::User,
            _ => LimitType::SourceAndObject,
        },
        qps: 1,
        burst: burst.parse().unwrap(),
        cache_size: cache_size.parse().unwrap(),
    }
}

#[test]
fn event_rate_limit_takes_and_refuses_as_upstreams() {
    let mut cases = 0;
    for case in CASES.lines().filter(|line| !line.is_empty()) {
        let (limits, requests) = case.split_once('|').unwrap();
        let limits: Vec<Limit> = limits.split_whitespace().map(limit).collect();
        let asked = Asked::new(&limits);
        for (at, what) in requests.split_whitespace().enumerate() {
            let later = what.strip_prefix('+');
            if later.is_some() {
                *asked.now.lock() += Duration::from_secs(1);
            }
            let refused = what.strip_prefix('!');
            let answer = asked.ask_for(later.or(refused).unwrap_or(what));
            assert_eq!(answer.is_err(), refused.is_some(), "{case}: request {at}");
        }
        cases += 1;
    }
    assert_eq!(cases, 27);
}

/// Messages of a real server.
#[test]
fn event_rate_limit_names_type_and_key() {
    let asked = Asked::new(&[limit("namespace=2/2000"), limit("source=1")]);
    let user = UserInfo::named("anna", [""; 0]);
    let involved =
        json!({"namespace": "default", "name": "web", "kind": "Pod", "uid": "u", "apiVersion": "v1"});
    let event = json!({"involvedObject": involved, "source": {"component": "c", "host": "h"}});
    let request = request(&user, "default", "Event");
    let ask = || asked.ask(&request, &event).map_err(|error| error.to_string());
    assert_eq!(ask(), Ok(()));
    let source = "limit reached on type SourceAndObject for key chPoddefaultwebuv1";
    assert_eq!(ask(), Err(format!("Too many requests: {source}")));
    let both = format!("Too many requests: [limit reached on type Namespace for key default, {source}]");
    assert_eq!(ask(), Err(both));
    let dry_run = Request {
        dry_run: true,
        host: None,
        reinvocation: None,
        ..request
    };
    assert!(asked.ask(&dry_run, &event).is_ok());
}

/// Upstream lets these pass.
#[test]
fn event_rate_limit_counts_events_of_both_groups() {
    let asked = Asked::new(&[limit("source=1")]);
    let user = UserInfo::named("anna", [""; 0]);
    let request = Request {
        group: "events.k8s.io",
        ..request(&user, "default", "Event")
    };
    let ask = |controller: &str, name: &str| {
        let event = json!({"regarding": {"kind": "Pod", "name": name}, "reportingController": controller});
        asked.ask(&request, &event).is_ok()
    };
    assert!(ask("a", "web"));
    assert!(!ask("a", "web"));
    assert!(ask("a", "other") && ask("b", "web"));
}

#[test]
fn event_rate_limit_keeps_nothing_of_long_keys() {
    let asked = Asked::new(&[limit("source=1")]);
    let long = "x".repeat(1 << 20);
    let what = format!("component={long}");
    assert!(asked.ask_for(&what).is_ok());
    let refused = asked.ask_for(&what).unwrap_err().to_string();
    assert!(refused.len() < 2 * SHOWN_CHARACTERS, "{} bytes", refused.len());
}

#[track_caller]
fn check(limits: Value, expected: Result<usize, &str>) {
    let parsed = Configuration::parse(Some(&configuration(&limits)));
    let found = parsed
        .map(|own| own.limits().len())
        .map_err(|error| error.to_string());
    assert_eq!(found, expected.map_err(str::to_owned));
}

/// Cases of upstream's `validation_test.go`, with the words of a real server.
#[test]
fn event_rate_limit_configuration_is_checked_as_upstreams() {
    let server = json!({"type": "Server", "burst": 5, "qps": 1});
    let namespace = json!({"type": "Namespace", "burst": 10, "qps": 2, "cacheSize": 100});
    let source = json!({"type": "SourceAndObject", "burst": 25, "qps": 10, "cacheSize": 1000});
    check(json!([server]), Ok(1));
    check(
        json!([{"type": "Server", "burst": 5, "qps": 1, "cacheSize": null}]),
        Ok(1),
    );
    check(json!([namespace]), Ok(1));
    check(
        json!([{"type": "User", "burst": 10, "qps": 2, "cacheSize": 100}]),
        Ok(1),
    );
    check(json!([source]), Ok(1));
    check(json!([server, namespace, source]), Ok(3));
    check(json!(null), Err("limits: Invalid value: null: must not be empty"));
    let supported = r#"supported values: "Server", "Namespace", "User", "SourceAndObject""#;
    let no_type = format!("limits[0].type: Unsupported value: \"\": {supported}");
    check(
        json!([{"burst": 25, "qps": 10, "cacheSize": 1000}]),
        Err(&no_type),
    );
    let unknown = format!("limits[0].type: Unsupported value: \"unknown-type\": {supported}");
    check(
        json!([{"type": "unknown-type", "burst": 25, "qps": 10, "cacheSize": 1000}]),
        Err(&unknown),
    );
    check(
        json!([{"type": "Server", "qps": 1}]),
        Err("limits[0].burst: Invalid value: 0: must be positive"),
    );
    check(
        json!([{"type": "Server", "burst": 5}]),
        Err("limits[0].qps: Invalid value: 0: must be positive"),
    );
    check(
        json!([{"type": "Namespace", "burst": 10, "qps": 2, "cacheSize": -1}]),
        Err("limits[0].cacheSize: Invalid value: -1: must not be negative"),
    );
    let all = format!(
        "[limits[0].type: Unsupported value: \"Foo\": {supported}, limits[0].burst: Invalid value: -1: must be positive, limits[0].qps: Invalid value: 0: must be positive, limits[0].cacheSize: Invalid value: -1: must not be negative]"
    );
    let foo = json!({"type": "Foo", "qps": 0, "burst": -1, "cacheSize": -1});
    let negative = json!({"type": "Server", "qps": 1, "burst": 1, "cacheSize": -1, "unknown": 1});
    check(json!([foo, negative]), Err(&all));
    let absent = Configuration::parse(None).unwrap_err().to_string();
    assert_eq!(absent, "limits: Invalid value: null: must not be empty");
}

/// Cases of upstream's `config_test.go`.
#[test]
fn event_rate_limit_configuration_is_read_as_upstreams() {
    let limits = json!([
        {"type": "Namespace", "qps": 50, "burst": 100, "cacheSize": 2000},
        {"type": "User", "qps": 10, "burst": 50},
    ]);
    let mut written = configuration(&limits);
    let parsed = Configuration::parse(Some(&written)).unwrap();
    let user = Limit {
        limit_type: LimitType::User,
        qps: 10,
        burst: 50,
        cache_size: 0,
    };
    assert_eq!(parsed.limits()[1], user);
    assert_eq!((parsed.limits()[0].buckets(), user.buckets()), (2_000, 4_096));
    written["apiVersion"] = json!("eventratelimit.admission.k8s.io/v1alpha2");
    let refused = Configuration::parse(Some(&written)).unwrap_err().to_string();
    let expected = "no kind \"Configuration\" is registered for version \"eventratelimit.admission.k8s.io/v1alpha2\" in scheme \"pkg/runtime/scheme.go:111\"";
    assert_eq!(refused, expected);
}
