//! `/statusz` and `/flagz`: what this agent is and how it was started, as text or as objects of `config.k8s.io/v1beta1` (KEPs 4827 and
//! 4828); and answers of handlers that a kubelet may have, and this agent has not.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::response::{Body, text, with_type};

const COMPONENT: &str = "kubelet";
const GROUP: &str = "config.k8s.io";
const VERSION: &str = "v1beta1";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";
/// Paths that upstream's page lists: those of its handlers without a route.
const PATHS: [&str; 5] = ["/configz", "/debug", "/flagz", "/healthz", "/metrics"];
const OFFERED: &str = "application/json, application/yaml, text/plain";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    Yaml,
}

/// Facts of this process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process<'a> {
    pub(super) began: Timestamp,
    pub(super) now: Timestamp,
    /// As `kubectl get nodes` shows it.
    pub(super) version: &'a str,
}

/// `/statusz`.
pub(super) fn statusz(process: Process<'_>, headers: &HeaderMap) -> Response<Body> {
    let uptime = process.now.duration_since(process.began).as_secs().max(0);
    let binary = process.version.trim_start_matches('v');
    let emulated: Vec<&str> = binary.split(['.', '-', '+']).take(2).collect();
    let emulated = emulated.join(".");
    match form(headers, "Statusz") {
        None => not_acceptable(),
        Some(Form::Text) => text(
            StatusCode::OK,
            format!(
                "\n{COMPONENT} statusz\n{WARNING}\n\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nGo version: rust\nBinary \
                 version: {binary}\nEmulation version: {emulated}\nPaths: {}\n",
                process.began.strftime("%a %b %e %H:%M:%S UTC %Y"),
                uptime / 3_600,
                uptime / 60 % 60,
                uptime % 60,
                PATHS.join(" "),
            ),
        ),
        Some(form) => {
            let members = json!({
                "startTime": process.began.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                "uptimeSeconds": uptime,
                "goVersion": "rust",
                "binaryVersion": binary,
                "emulationVersion": emulated,
                "paths": PATHS,
            });
            object("Statusz", members, form)
        }
    }
}

/// `/flagz`. No flag holds a secret: secrets are in files.
pub(super) fn flagz(flags: &[(String, String)], headers: &HeaderMap) -> Response<Body> {
    match form(headers, "Flagz") {
        None => not_acceptable(),
        Some(Form::Text) => {
            let mut page = format!("\n{COMPONENT} flagz\n{WARNING}\n");
            for (name, value) in flags {
                // Writing to a string does not fail.
                let _ = writeln!(page, "{name}={value}");
            }
            text(StatusCode::OK, page)
        }
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
    let accepted = accepted.unwrap_or_default();
    match accepted.trim().is_empty() {
        true => Some(Form::Text),
        false => accepted.split(',').find_map(|range| form_of(range, page)),
    }
}

fn form_of(range: &str, page: &str) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    let media_type = parts.next()?;
    let mut wanted = [("as", page, false), ("v", VERSION, false), ("g", GROUP, false)];
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if let Some((_, own, named)) = wanted.iter_mut().find(|(own, ..)| *own == name) {
            if value != *own {
                return None;
            }
            *named = true;
        }
    }
    let is_object = wanted.iter().all(|(.., named)| *named);
    let is_plain = !wanted.iter().any(|(.., named)| *named);
    match media_type {
        "text/plain" | "text/*" | "*/*" if is_plain => Some(Form::Text),
        "application/json" if is_object => Some(Form::Json),
        "application/yaml" if is_object => Some(Form::Yaml),
        _ => None,
    }
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
        "message": format!("only the following media types are accepted: {OFFERED}"),
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
        let process = Process {
            began,
            now: began + jiff::SignedDuration::from_secs(3_723),
            version: "v1.37.1-knarr",
        };
        let flags = [
            ("a".to_owned(), "1".to_owned()),
            ("b".to_owned(), "x y".to_owned()),
        ];
        let answer = match kind {
            "Statusz" => statusz(process, &headers),
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
