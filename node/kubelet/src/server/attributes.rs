//! Attributes of a request for authorization: a verb, and subresources of the node (upstream's `GetRequestAttributes`).

use http::Method;

/// Paths that act in containers.
const STREAMING_PATHS: [&str; 4] = ["exec", "attach", "portForward", "run"];

/// Subresources by the first segment of a path; any of them is enough.
const SUBRESOURCES: [(&str, &[&str]); 11] = [
    ("stats", &["stats"]),
    ("metrics", &["metrics"]),
    ("logs", &["log"]),
    ("checkpoint", &["checkpoint"]),
    ("statusz", &["statusz"]),
    ("flagz", &["configz"]),
    ("allocatedPods", &["pods", "proxy"]),
    ("pods", &["pods", "proxy"]),
    ("runningpods", &["pods", "proxy"]),
    ("healthz", &["healthz", "proxy"]),
    ("configz", &["configz", "proxy"]),
];

/// The verb of a request, and nothing for a method that upstream gives none: only a user with all rights may send it.
///
/// Running something in a container or connecting to it is `create` whatever the method, where upstream goes by the method: a
/// WebSocket begins with GET, and a reader of the node's proxied paths may not therefore act in its pods.
pub(crate) fn verb_of(method: &Method, path: &str) -> &'static str {
    if STREAMING_PATHS.contains(&first_segment(path)) {
        return "create";
    }
    match method.as_str() {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The subresources of the node that a path belongs to.
pub(crate) fn subresources_of(path: &str) -> &'static [&'static str] {
    let segment = first_segment(path);
    let row = SUBRESOURCES.iter().find(|(own, _)| *own == segment);
    row.map_or(&["proxy"], |(_, subresources)| *subresources)
}

/// Routing drops empty segments, and so does this.
fn first_segment(path: &str) -> &str {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    segments.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths of upstream's `AuthzTestCases`, and some that only look like them.
    const CASES: &str = "
        /attach/{podNamespace}/{podID}/{containerName}              proxy
        /attach/{podNamespace}/{podID}/{uid}/{containerName}        proxy
        /checkpoint/{podNamespace}/{podID}/{containerName}          checkpoint
        /configz                                                    configz,proxy
        /flagz                                                      configz
        /statusz                                                    statusz
        /containerLogs/{podNamespace}/{podID}/{containerName}       proxy
        /debug/flags/v                                              proxy
        /debug/pprof/{subpath:*}                                    proxy
        /exec/{podNamespace}/{podID}/{containerName}                proxy
        /exec/{podNamespace}/{podID}/{uid}/{containerName}          proxy
        /healthz                                                    healthz,proxy
        /healthz/log                                                healthz,proxy
        /healthz/ping                                               healthz,proxy
        /healthz/syncloop                                           healthz,proxy
        /logs/                                                      log
        /logs/{logpath:*}                                           log
        /metrics                                                    metrics
        /metrics/slis                                               metrics
        /metrics/cadvisor                                           metrics
        /metrics/probes                                             metrics
        /metrics/resource                                           metrics
        /pods/                                                      pods,proxy
        /portForward/{podNamespace}/{podID}                         proxy
        /portForward/{podNamespace}/{podID}/{uid}                   proxy
        /run/{podNamespace}/{podID}/{containerName}                 proxy
        /run/{podNamespace}/{podID}/{uid}/{containerName}           proxy
        /runningpods/                                               pods,proxy
        /stats/                                                     stats
        /stats/summary                                              stats
        /allocatedPods                                              pods,proxy
        /pods                                                       pods,proxy
        /podsandmore                                                proxy
        /Stats/summary                                              proxy
        /                                                           proxy
    ";

    #[test]
    fn request_is_authorized_as_upstreams() {
        for (method, verb) in [
            ("POST", "create"),
            ("GET", "get"),
            ("PUT", "update"),
            ("PATCH", "patch"),
            ("DELETE", "delete"),
            ("HEAD", ""),
            ("OPTIONS", ""),
        ] {
            for case in CASES.trim().lines() {
                let (path, subresources) = case.trim().split_once(' ').unwrap();
                assert_eq!(subresources_of(path).join(","), subresources.trim(), "{path}");
                let acts = ["/attach/", "/exec/", "/portForward/", "/run/"];
                let acts = acts.iter().any(|own| path.starts_with(own));
                let expected = if acts { "create" } else { verb };
                let found = verb_of(&method.parse().unwrap(), path);
                assert_eq!(found, expected, "{method} {path}");
            }
        }
        assert_eq!(subresources_of("//metrics//x"), ["metrics"]);
        assert_eq!(verb_of(&Method::GET, "//exec/n/p/c"), "create");
        assert_eq!(verb_of(&Method::GET, "/execute"), "get");
    }
}
