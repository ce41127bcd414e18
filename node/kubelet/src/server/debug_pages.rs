//! `/statusz` and `/flagz`: what this agent is and how it was started, as text or as objects of `config.k8s.io/v1beta1` (KEPs 4827 and
//! 4828); and answers of handlers that a kubelet may have, and this agent has not.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, Response, StatusCode};
use jiff::Timestamp;
use machinery_meta::debug_page::{Form, GROUP, Process, VERSION, flags_text};
use serde_json::{Map, Value, json};

use super::response::{Body, text, with_type};

const COMPONENT: &str = "kubelet";
/// Paths that upstream's page lists: those of its handlers without a route.
const PATHS: [&str; 5] = ["/configz", "/debug", "/flagz", "/healthz", "/metrics"];

/// Facts of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agent<'a> {
    pub(super) began: Timestamp,
    pub(super) now: Timestamp,
    /// As `kubectl get nodes` shows it.
    pub(super) version: &'a str,
}

/// `/statusz`.
pub(super) fn statusz(agent: Agent<'_>, headers: &HeaderMap) -> Response<Body> {
    let binary = agent.version.trim_start_matches('v');
    let emulated: Vec<&str> = binary.split(['.', '-', '+']).take(2).collect();
    let process = Process {
        component: COMPONENT,
        began: agent.began,
        now: agent.now,
        language: "rust",
        binary_version: binary,
        emulation_version: &emulated.join("."),
        paths: &PATHS,
    };
    match form(headers, "Statusz") {
        None => not_acceptable(),
        Some(Form::Text) => text(StatusCode::OK, process.text()),
        Some(form) => {
            let members = json!({
                "startTime": process.start_time(),
                "uptimeSeconds": process.uptime_seconds(),
                "goVersion": process.language,
                "binaryVersion": process.binary_version,
                "emulationVersion": process.emulation_version,
                "paths": process.paths,
            });
            object("Statusz", members, form)
        }
    }
}

/// `/flagz`.
pub(super) fn flagz(flags: &[(String, String)], headers: &HeaderMap) -> Response<Body> {
    match form(headers, "Flagz") {
        None => not_acceptable(),
        Some(Form::Text) => text(StatusCode::OK, flags_text(COMPONENT, flags)),
        Some(form) => {
            let flags: Map<String, Value> = flags
                .iter()
                .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
                .collect();
            object("Flagz", json!({ "flags": flags }), form)
        }
    }
}

/// Answers of `/debug/`: what upstream's kubelet says where these handlers are switched off.
pub(super) fn disabled(segments: &[&str]) -> Option<Response<Body>> {
    let words = match segments {
        ["debug", "pprof", ..] => "profiling endpoint is disabled.\n",
        ["debug", "flags", "v"] => "flags endpoint is disabled.\n",
        _ => return None,
    };
    Some(text(StatusCode::METHOD_NOT_ALLOWED, words))
}

/// The first form in the order of the client that there is.
fn form(headers: &HeaderMap, page: &str) -> Option<Form> {
    let accepted = headers
        .get(ACCEPT)
        .map(|value| String::from_utf8_lossy(value.as_bytes()));
    Form::of(&accepted.unwrap_or_default(), page)
}

fn object(kind: &str, members: Value, form: Form) -> Response<Body> {
    let mut object = json!({
        "kind": kind,
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": {"name": COMPONENT},
    });
    if let (Some(object), Value::Object(members)) = (object.as_object_mut(), members) {
        object.extend(members);
    }
    match form {
        Form::Yaml => with_type(StatusCode::OK, "application/yaml", yaml(&object)),
        _ => with_type(StatusCode::OK, "application/json", format!("{object}\n").into()),
    }
}

/// A member a line, with its value as JSON, which YAML reads.
fn yaml(object: &Value) -> Bytes {
    let mut page = String::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        let _ = writeln!(page, "{name}: {value}");
    }
    page.into()
}

fn not_acceptable() -> Response<Body> {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!("only the following media types are accepted: {}", Form::OFFERED.join(", ")),
        "reason": "NotAcceptable",
        "code": 406,
    });
    let body = status.to_string().into();
    with_type(StatusCode::NOT_ACCEPTABLE, "application/json", body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    const JSON: &str = "application/json;as=Statusz;v=v1beta1;g=config.k8s.io";

    async fn page(accept: &str, kind: &str) -> (u16, String) {
        let mut headers = HeaderMap::new();
        if !accept.is_empty() {
            headers.insert(ACCEPT, accept.parse().unwrap());
        }
        let began: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let agent = Agent {
            began,
            now: began + jiff::SignedDuration::from_secs(3_723),
            version: "v1.37.1-knarr",
        };
        let flags = [
            ("a".to_owned(), "1".to_owned()),
            ("b".to_owned(), "x y".to_owned()),
        ];
        let answer = match kind {
            "Statusz" => statusz(agent, &headers),
            _ => flagz(&flags, &headers),
        };
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn debug_pages_are_text_or_objects_as_upstreams() {
        let (status, text) = page("", "Statusz").await;
        assert_eq!(status, 200);
        for line in [
            "kubelet statusz",
            "Started: Sat Nov 21 12:00:00 UTC 2026",
            "Up: 1 hr 02 min 03 sec",
            "Binary version: 1.37.1-knarr",
            "Emulation version: 1.37",
            "Paths: /configz /debug /flagz /healthz /metrics",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
        let (_, text) = page("*/*", "Flagz").await;
        assert!(text.ends_with("\na=1\nb=x y\n"), "{text}");
        let (_, text) = page(JSON, "Statusz").await;
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["uptimeSeconds"], 3_723);
        assert_eq!(object["metadata"]["name"], "kubelet");
        let flagz = JSON.replace("Statusz", "Flagz").replace("json", "yaml");
        let (_, text) = page(&flagz, "Flagz").await;
        assert!(text.contains("flags: {\"a\":\"1\",\"b\":\"x y\"}\n"), "{text}");
    }

    #[tokio::test]
    async fn debug_page_in_no_form_that_the_client_takes_is_not_acceptable() {
        for accept in [
            "application/json",
            "text/html",
            JSON.replace("v1beta1", "v2").as_str(),
        ] {
            let (status, text) = page(accept, "Statusz").await;
            assert_eq!(status, 406, "{accept}");
            assert!(text.contains("\"reason\":\"NotAcceptable\""), "{text}");
        }
    }

    #[test]
    fn debug_handlers_that_are_absent_answer_as_disabled_ones() {
        for segments in [&["debug", "pprof"][..], &["debug", "flags", "v"]] {
            let answer = disabled(segments).unwrap();
            assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
        }
        assert!(disabled(&["debug", "other"]).is_none() && disabled(&["pods"]).is_none());
    }
}
