//! Documents as upstream's `validation_test.go`, `validation_pluginargs_test.go` and `default_plugins_test.go` have them.

use super::args::{DynamicResourcesArgs, ScoringStrategy, score_on};
use super::*;
use crate::meter::ExtensionPoint::{Bind, Filter, PostFilter, PreEnqueue, PreFilter, Score};
use crate::object::NodeAffinity;
use serde_json::json;

fn document(rest: Value) -> Value {
    let mut all = json!({"apiVersion": API_VERSION, "kind": KIND});
    for (key, value) in rest.as_object().unwrap() {
        all[key] = value.clone();
    }
    all
}

#[track_caller]
fn valid(rest: Value) -> Configuration {
    Configuration::read(&document(rest)).unwrap()
}

/// The only problem, or all of them.
#[track_caller]
fn refused(rest: Value, expected: &str) {
    let error = Configuration::read(&document(rest)).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

/// A profile with arguments of one plugin.
fn args(plugin: &str, args: Value) -> Value {
    json!({"profiles": [{"pluginConfig": [{"name": plugin, "args": args}]}]})
}

fn plugins(plugins: Value) -> Value {
    json!({"profiles": [{"plugins": plugins}]})
}

#[test]
fn configuration_of_an_empty_document_is_the_default() {
    assert_eq!(valid(json!({})), Configuration::default());
    let settled = &Configuration::default().profiles[0].plugins;
    assert_eq!(
        settled.at(PreEnqueue),
        ["SchedulingGates", "DynamicResources", "DefaultPreemption"]
    );
    assert_eq!(settled.at(PostFilter), ["DynamicResources", "DefaultPreemption"]);
    assert_eq!(settled.at(Bind), ["DefaultBinder"]);
    assert_eq!(settled.at(Filter).first(), Some(&"NodeName"));
    assert_eq!(settled.at(Filter).last(), Some(&"NodeDeclaredFeatures"));
    let weights: Vec<(&str, i64)> = settled
        .at(Score)
        .iter()
        .map(|name| (*name, settled.weight(name)))
        .collect();
    assert_eq!(
        weights,
        [
            ("TaintToleration", 3),
            ("NodeAffinity", 2),
            ("NodeResourcesFit", 1),
            ("VolumeBinding", 1),
            ("PodTopologySpread", 2),
            ("InterPodAffinity", 2),
            ("DynamicResources", 2),
            ("NodeResourcesBalancedAllocation", 1),
            ("ImageLocality", 1),
        ]
    );
}

#[test]
fn configuration_names_every_problem_with_its_path() {
    refused(
        json!({"parallelism": 0}),
        "parallelism: Invalid value: 0: should be an integer value greater than zero",
    );
    refused(
        json!({"parallelism": "many"}),
        "parallelism: Invalid value: \"many\": must be a whole number",
    );
    for percentage in [-1, 101] {
        let detail = format!("Invalid value: {percentage}: not in valid range [0-100]");
        refused(
            json!({"percentageOfNodesToScore": percentage}),
            &format!("percentageOfNodesToScore: {detail}"),
        );
        refused(
            json!({"profiles": [{"percentageOfNodesToScore": percentage}]}),
            &format!("profiles[0].percentageOfNodesToScore: {detail}"),
        );
    }
    refused(
        json!({"podInitialBackoffSeconds": 0, "podMaxBackoffSeconds": -1}),
        "[podInitialBackoffSeconds: Invalid value: 0: must be greater than 0, podMaxBackoffSeconds: Invalid value: \
         -1: must be greater than or equal to PodInitialBackoffSeconds]",
    );
    refused(
        json!({"profiles": [{"schedulerName": "me"}, {}]}),
        "profiles[1].schedulerName: Required value",
    );
    refused(
        json!({"profiles": [{"schedulerName": "me"}, {"schedulerName": "me"}]}),
        "profiles[1].schedulerName: Duplicate value: \"profiles[0].schedulerName\"",
    );
    refused(json!({"profile": []}), "profile: Forbidden: unknown field");
    let many: Vec<Value> = (0..17)
        .map(|at| json!({"schedulerName": at.to_string()}))
        .collect();
    refused(
        json!({"profiles": many}),
        "profiles: Too many: 17: must have at most 16 items",
    );
    let error = Configuration::read(&json!({"apiVersion": "v1", "kind": KIND})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "apiVersion: Unsupported value: \"v1\": supported values: \"kubescheduler.config.k8s.io/v1\""
    );
    assert!(Configuration::read(&json!([])).is_err());
}

#[test]
fn fields_without_effect_are_named() {
    let read = valid(json!({"parallelism": 8, "leaderElection": {"leaderElect": true},
        "profiles": [{"percentageOfNodesToScore": 35, "pluginConfig": [{"name": "Other", "args": {"a": 1}}]}]}));
    assert_eq!(
        read.without_effect,
        ["parallelism", "leaderElection", "profiles[0].pluginConfig[0]"]
    );
    assert_eq!(read.profiles[0].percentage_of_nodes_to_score, Some(35));
    assert_eq!(read.percentage_of_nodes_to_score, 0);
    let read = valid(json!({"podInitialBackoffSeconds": 2, "podMaxBackoffSeconds": 3}));
    assert_eq!(read.pod_initial_backoff, Duration::from_secs(2));
    assert_eq!(read.pod_max_backoff, Duration::from_secs(3));
}

#[test]
fn election_and_connection_are_checked_though_they_have_no_effect() {
    let election = |own: Value| json!({"leaderElection": own});
    let all = valid(json!({
        "leaderElection": {"leaderElect": true, "leaseDuration": "20s", "renewDeadline": "15s", "retryPeriod": "0s",
            "resourceLock": "leases", "resourceName": "n", "resourceNamespace": "ns"},
        "clientConnection": {"kubeconfig": "k", "acceptContentTypes": "", "contentType": "", "qps": 12.5, "burst": 3}}));
    assert_eq!(all.without_effect, ["leaderElection", "clientConnection"]);
    refused(
        election(json!({"leaseDuration": "10s"})),
        "leaderElection.leaseDuration: Invalid value: 10s: must be greater than `RenewDeadline`",
    );
    refused(
        election(json!({"retryPeriod": "-1s"})),
        "leaderElection.retryPeriod: Invalid value: -1s: must be greater than zero",
    );
    refused(
        election(json!({"resourceLock": "endpoints"})),
        "leaderElection.resourceLock: Invalid value: \"endpoints\": resourceLock value must be \"leases\"",
    );
    let off = json!({"leaderElect": false, "leaseDuration": "1s", "resourceLock": "endpoints"});
    assert_eq!(valid(election(off)).without_effect, ["leaderElection"]);
    refused(
        election(json!({"lease": "1s"})),
        "leaderElection.lease: Forbidden: unknown field",
    );
    let connection = |own: Value| json!({"clientConnection": own});
    refused(
        connection(json!({"burst": -1})),
        "clientConnection.burst: Invalid value: -1: must be non-negative",
    );
    refused(
        connection(json!({"QPS": 1})),
        "clientConnection.QPS: Forbidden: unknown field",
    );
}

#[test]
fn devices_arguments_are_checked() {
    let read = |own: Value| {
        valid(args("DynamicResources", own)).profiles[0]
            .args
            .dynamic_resources
    };
    assert_eq!(read(json!({})), DynamicResourcesArgs::default());
    let given = read(json!({"filterTimeout": "2s", "bindingTimeout": "1m30s"}));
    assert_eq!(given.filter_timeout, Some(Duration::from_secs(2)));
    assert_eq!(given.binding_timeout, Duration::from_secs(90));
    let at = "profiles[0].pluginConfig[0].args";
    for (field, value, detail) in [
        ("filterTimeout", "-1ns", "must be zero or positive"),
        ("bindingTimeout", "0s", "must be at least 1 second"),
        ("bindingTimeout", "999ms", "must be at least 1 second"),
        ("bindingTimeout", "-10s", "must be at least 1 second"),
        ("bindingTimeout", "25h", "must be less than or equal to 86400s"),
    ] {
        refused(
            args("DynamicResources", json!({field: value})),
            &format!("{at}.{field}: Invalid value: {value}: {detail}"),
        );
    }
}

#[test]
fn added_affinity_has_no_unknown_fields() {
    let term = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["z", "b"]}],
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n"]}]});
    let required = json!({"nodeSelectorTerms": [term]});
    let preferred = json!([{"weight": 3, "preference": term}]);
    let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred});
    let read = valid(args("NodeAffinity", json!({"addedAffinity": affinity})));
    let expected: NodeAffinity = serde_json::from_value(affinity.clone()).unwrap();
    assert_eq!(read.profiles[0].args.node_affinity.added_affinity, expected);
    let at = "profiles[0].pluginConfig[0].args.addedAffinity";
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (pointer, path) in [
        ("", String::new()),
        (
            "/requiredDuringSchedulingIgnoredDuringExecution",
            format!(".{required}"),
        ),
        (
            "/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0",
            format!(".{required}.nodeSelectorTerms[0]"),
        ),
        (
            "/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0",
            format!(".{required}.nodeSelectorTerms[0].matchExpressions[0]"),
        ),
        (
            "/preferredDuringSchedulingIgnoredDuringExecution/0",
            format!(".{preferred}[0]"),
        ),
    ] {
        let mut own = affinity.clone();
        own.pointer_mut(pointer).unwrap()["other"] = json!(1);
        let own = args("NodeAffinity", json!({"addedAffinity": own}));
        refused(own, &format!("{at}{path}.other: Forbidden: unknown field"));
    }
}

/// The plugins of a point.
#[track_caller]
fn settled(sets: Value, point: crate::meter::ExtensionPoint, expected: &[&str]) {
    let read = valid(plugins(sets));
    assert_eq!(read.profiles[0].plugins.at(point), expected);
}

#[test]
fn plugin_sets_are_merged_as_upstreams() {
    let only = |name: &str| json!([{"name": name}]);
    settled(json!({"score": {"disabled": only("*")}}), Score, &[]);
    settled(
        json!({"score": {"disabled": only("*"), "enabled": [{"name": "ImageLocality", "weight": 5}]}}),
        Score,
        &["ImageLocality"],
    );
    // A plugin that the point names again keeps what the point says, and comes first.
    let again = json!({"score": {"enabled": [{"name": "ImageLocality", "weight": 5}]}});
    let read = valid(plugins(again));
    let own = &read.profiles[0].plugins;
    assert_eq!(own.at(Score)[..2], ["ImageLocality", "TaintToleration"]);
    assert_eq!((own.weight("ImageLocality"), own.at(Score).len()), (5, 9));
    // Of all points.
    settled(
        json!({"multiPoint": {"disabled": only("*"), "enabled": [
            {"name": "PrioritySort"}, {"name": "DefaultBinder"}, {"name": "NodeName"}]}}),
        Filter,
        &["NodeName"],
    );
    settled(
        json!({"multiPoint": {"disabled": only("NodeAffinity")}}),
        PreFilter,
        &[
            "NodePorts",
            "NodeResourcesFit",
            "VolumeRestrictions",
            "NodeVolumeLimits",
            "VolumeBinding",
            "VolumeZone",
            "PodTopologySpread",
            "InterPodAffinity",
            "DynamicResources",
            "NodeDeclaredFeatures",
        ],
    );
    let weighs = json!({"multiPoint": {"enabled": [{"name": "NodeResourcesFit", "weight": 7}]}});
    let read = valid(plugins(weighs));
    assert_eq!(read.profiles[0].plugins.weight("NodeResourcesFit"), 7);
    assert_eq!(read.profiles[0].plugins.at(Score)[2], "NodeResourcesFit");
    // Disabled at one point alone.
    settled(
        json!({"postFilter": {"disabled": only("DefaultPreemption")}}),
        PostFilter,
        &["DynamicResources"],
    );
}

#[test]
fn plugin_sets_that_make_no_profile_are_refused() {
    refused(
        plugins(json!({"filter": {"enabled": [{"name": "Nobody"}]}})),
        "profiles[0].plugins.filter.enabled[0]: Invalid value: \"Nobody\": plugin does not exist",
    );
    refused(
        plugins(json!({"filter": {"enabled": [{"name": "ImageLocality"}]}})),
        "profiles[0].plugins.filter.enabled[0]: Invalid value: \"ImageLocality\": plugin does not extend Filter plugin",
    );
    refused(
        plugins(json!({"filter": {"enabled": [{"name": "NodeName"}, {"name": "NodeName"}]}})),
        "profiles[0].plugins.filter.enabled[1]: Duplicate value: \"NodeName\"",
    );
    refused(
        plugins(json!({"bind": {"disabled": [{"name": "*"}]}})),
        "profiles[0].plugins.bind: Required value: at least one bind plugin is needed",
    );
    refused(
        plugins(json!({"queueSort": {"disabled": [{"name": "PrioritySort"}]}})),
        "profiles[0].plugins.queueSort: Required value: only one queue sort plugin required, but got 0",
    );
    refused(
        plugins(json!({"score": {"enabled": [{"name": "NodeAffinity", "weight": -1}]}})),
        "profiles[0].plugins.score.enabled[0].weight: Invalid value: -1: not in valid range [0, 2147483647]",
    );
    refused(
        plugins(json!({"filters": {}})),
        "profiles[0].plugins.filters: Forbidden: unknown field",
    );
}

#[test]
fn arguments_are_checked_as_upstreams() {
    let at = "profiles[0].pluginConfig[0].args";
    let check = |plugin: &str, given: Value, expected: &str| {
        refused(args(plugin, given), &format!("{at}.{expected}"));
    };
    check(
        "DefaultPreemption",
        json!({"minCandidateNodesPercentage": 200}),
        "minCandidateNodesPercentage: Invalid value: 200: not in valid range [0, 100]",
    );
    check(
        "DefaultPreemption",
        json!({"minCandidateNodesAbsolute": -1}),
        "minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)",
    );
    check(
        "InterPodAffinity",
        json!({"hardPodAffinityWeight": 101}),
        "hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
    );
    check(
        "NodeResourcesFit",
        json!({"scoringStrategy": {"type": "Best"}}),
        "scoringStrategy.type: Unsupported value: \"Best\": supported values: \"LeastAllocated\", \"MostAllocated\", \
         \"RequestedToCapacityRatio\"",
    );
    check(
        "NodeResourcesFit",
        json!({"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 101}]}}),
        "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]",
    );
    check(
        "NodeResourcesFit",
        json!({"scoringStrategy": {"type": "RequestedToCapacityRatio"}}),
        "scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is \
         RequestedToCapacityRatio",
    );
    check(
        "NodeResourcesFit",
        json!({"scoringStrategy": {"type": "LeastAllocated", "requestedToCapacityRatio": {}}}),
        "scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityRatio",
    );
    check(
        "NodeResourcesFit",
        json!({"ignoredResourceGroups": ["example.com/x"]}),
        "ignoredResourceGroups[0]: Invalid value: \"example.com/x\": resource group name can't contain '/'",
    );
    check(
        "NodeResourcesBalancedAllocation",
        json!({"resources": [{"name": "cpu"}, {"name": "cpu"}]}),
        "resources[1].name: Duplicate value: \"cpu\"",
    );
    check(
        "NodeResourcesBalancedAllocation",
        json!({"resources": [{"name": "cpu", "weight": 2}]}),
        "resources[0].weight: Invalid value: 2: must be 1",
    );
    check(
        "VolumeBinding",
        json!({"bindTimeoutSeconds": -10}),
        "bindTimeoutSeconds: Invalid value: -10: invalid BindTimeoutSeconds, should not be a negative value",
    );
    check(
        "NodeAffinity",
        json!({"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "Is"}]}]}}}),
        "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].operator: \
         Invalid value: \"Is\": not a valid selector operator",
    );
    refused(
        args("DefaultPreemption", json!({"kind": "InterPodAffinityArgs"})),
        &format!("{at}: Invalid value: \"InterPodAffinityArgs\": has to match plugin args"),
    );
    let twice = json!([{"name": "NodeAffinity"}, {"name": "NodeAffinity"}]);
    refused(
        json!({"profiles": [{"pluginConfig": twice}]}),
        "profiles[0].pluginConfig[1]: Duplicate value: \"NodeAffinity\"",
    );
}

#[test]
fn constraints_of_a_profile_are_checked_as_upstreams() {
    let at = "profiles[0].pluginConfig[0].args";
    let check = |given: Value, expected: &str| {
        refused(args("PodTopologySpread", given), &format!("{at}.{expected}"));
    };
    let one = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let with = |name: &str, value: Value| {
        let mut one = one.clone();
        one[name] = value;
        json!({"defaultingType": "List", "defaultConstraints": [one]})
    };
    check(
        with("maxSkew", json!(0)),
        "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
    );
    check(
        with("topologyKey", json!("")),
        "defaultConstraints[0].topologyKey: Required value: can not be empty",
    );
    check(
        with("whenUnsatisfiable", json!("Sometimes")),
        "defaultConstraints[0].whenUnsatisfiable: Unsupported value: \"Sometimes\": supported values: \
         \"DoNotSchedule\", \"ScheduleAnyway\"",
    );
    check(
        with("labelSelector", json!({})),
        "defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they deduced for \
         each pod",
    );
    check(
        json!({"defaultingType": "List", "defaultConstraints": [one, one]}),
        "defaultConstraints[1]: Duplicate value: \"{zone, DoNotSchedule}\"",
    );
    check(
        json!({"defaultConstraints": [one]}),
        "defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty",
    );
    check(
        json!({"defaultingType": "Own"}),
        "defaultingType: Unsupported value: \"Own\": supported values: \"System\", \"List\"",
    );
}

#[test]
fn shape_of_a_ratio_is_checked_and_linear_between_its_points() {
    let of = |shape: Value| {
        let strategy =
            json!({"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": shape}});
        args("NodeResourcesFit", json!({"scoringStrategy": strategy}))
    };
    let at = "profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio.shape";
    refused(
        of(json!([])),
        &format!("{at}: Required value: at least one point must be specified"),
    );
    let point = |utilization: i64, score: i64| json!({"utilization": utilization, "score": score});
    refused(
        of(json!([point(50, 1), point(50, 2)])),
        &format!("{at}[1].utilization: Invalid value: 50: values must be sorted in increasing order"),
    );
    refused(
        of(json!([point(101, 11)])),
        &format!(
            "[{at}[0].utilization: Invalid value: 101: not in valid range [0, 100], {at}[0].score: Invalid value: 11: \
             not in valid range [0, 10]]"
        ),
    );
    let read = valid(of(json!([point(20, 1), point(40, 10), point(80, 4)])));
    let ScoringStrategy::RequestedToCapacityRatio(shape) = &read.profiles[0].args.node_resources_fit.strategy
    else {
        panic!("a shape was given")
    };
    let scores = [0, 20, 30, 40, 60, 80, 100].map(|utilization| score_on(shape, utilization));
    assert_eq!(scores, [10, 10, 55, 100, 70, 40, 40]);
}

#[test]
fn extenders_are_read_with_their_defaults() {
    let read = valid(json!({"extenders": [
        {"urlPrefix": "http://late", "ignorable": true, "filterVerb": "filter"},
        {"urlPrefix": "https://first/x", "prioritizeVerb": "rate", "weight": 2, "bindVerb": "bind", "preemptVerb": "preempt",
         "enableHTTPS": true, "httpTimeout": "1m30s", "nodeCacheCapable": true,
         "tlsConfig": {"insecure": true, "serverName": "me", "caData": "YQ=="},
         "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": true}, {"name": "example.com/other"}]}]}));
    let urls: Vec<&str> = read.extenders.iter().map(|own| &*own.url_prefix).collect();
    assert_eq!(urls, ["https://first/x", "http://late"]);
    let [first, late] = &read.extenders[..] else {
        panic!("{read:?}")
    };
    assert_eq!(first.timeout, Duration::from_secs(90));
    assert_eq!(late.timeout, Duration::from_secs(5));
    assert!(first.enable_https && first.node_cache_capable && !first.ignorable);
    assert_eq!(first.tls.as_ref().map(|own| &*own.ca_data), Some("YQ=="));
    assert_eq!(first.managed_resources.len(), 2);
    // What an extender manages alone is nothing that a node must have.
    let ignored = &read.profiles[0].args.node_resources_fit.ignored_resources;
    assert_eq!(
        ignored.iter().map(|own| &**own).collect::<Vec<_>>(),
        ["example.com/gpu"]
    );
}

#[test]
fn extenders_are_refused_as_upstream_refuses_them() {
    let one = |extender: Value, problem: &str| {
        refused(
            json!({"extenders": [extender]}),
            &format!("extenders[0].{problem}"),
        );
    };
    one(
        json!({"urlPrefix": "http://e", "prioritizeVerb": "rate"}),
        "weight: Invalid value: 0: must have a positive weight applied to it",
    );
    one(
        json!({"managedResources": [{"name": "foo"}]}),
        "managedResources[0].name: Invalid value: \"foo\": is an invalid extended resource name",
    );
    one(
        json!({"managedResources": [{"name": "a.b/c"}, {"name": "a.b/c"}]}),
        "managedResources[1].name: Invalid value: \"a.b/c\": duplicate extender managed resource name",
    );
    one(
        json!({"httpTimeout": "soon"}),
        "httpTimeout: Invalid value: \"soon\": must be a duration that is not negative",
    );
    one(json!({"verb": "x"}), "verb: Forbidden: unknown field");
    refused(
        json!({"extenders": [{"bindVerb": "a"}, {"bindVerb": "b"}]}),
        "extenders: Invalid value: \"found 2 extenders implementing bind\": only one extender can implement bind",
    );
}
