//! Bodies, revisions, selectors and tokens that are not as they should be, over TLS: each gets upstream's answer.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use apiserver_auth::jwt::{self, Claims, KubernetesClaims, ObjectClaim};
use bytes::Bytes;
use common::{Answer, Cluster, start};
use http::Method;
use machinery_schema::protobuf::close_envelope;
use machinery_schema::{Strictness, decode_json, encode_protobuf};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

async fn send(cluster: &Cluster, form: &str, query: &str, body: impl Into<Bytes>) -> Answer {
    let path = format!("{CONFIG_MAPS}?dryRun=All{query}");
    let ask = cluster.admin().header("content-type", form);
    ask.send(Method::POST, &path, body.into()).await
}

fn protobuf(name: &str) -> Vec<u8> {
    let (schema, ty) = machinery_api::schema_for("", "v1", "ConfigMap").unwrap();
    let json = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}}).to_string();
    encode_protobuf(
        &decode_json(schema, ty, json.as_bytes(), Strictness::Ignore)
            .unwrap()
            .tree,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_bodies_are_bad_requests() {
    let cluster = start().await;
    let cut = protobuf("a");
    let cases: [(&str, &[u8], &str); 9] = [
        (
            JSON,
            b"",
            "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
        ),
        (JSON, b"{\"kind\":\"ConfigMap\",", "unexpected end of JSON input"),
        (
            JSON,
            b"{\"kind\" \"ConfigMap\"}",
            "invalid character '\"' after object key",
        ),
        (JSON, b"[1,2]", "cannot unmarshal array"),
        (
            JSON,
            br#"{"kind":"ConfigMap","apiVersion":"v1","data":{"a":1}}"#,
            "cannot unmarshal number",
        ),
        (YAML, b"a: [1", "yaml: "),
        (YAML, b"kind: ConfigMap\n\tdata: x", "yaml: "),
        (
            PROTOBUF,
            b"not protobuf",
            "provided data does not appear to be a protobuf message, expected prefix",
        ),
        (PROTOBUF, &cut[..cut.len() - 3], ""),
    ];
    for (form, body, words) in cases {
        let refused = send(&cluster, form, "", body.to_vec()).await.is(400).json();
        assert_eq!(refused["reason"], "BadRequest", "{refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(
            message.contains(words),
            "{form} {:?}: {message}",
            String::from_utf8_lossy(body)
        );
    }
}

/// The body says a field twice and one that is not there; each level answers in its own way.
async fn check_levels(cluster: &Cluster, form: &str, body: &str, problems: &[&str]) {
    let kept = send(cluster, form, "&fieldValidation=Ignore", body.to_owned())
        .await
        .is(201);
    assert!(!kept.headers.contains_key("warning"));
    let warned = send(cluster, form, "&fieldValidation=Warn", body.to_owned())
        .await
        .is(201);
    let warnings: Vec<&str> = warned
        .headers
        .get_all("warning")
        .iter()
        .map(|w| w.to_str().unwrap())
        .collect();
    assert_eq!(warnings.len(), problems.len(), "{warnings:?}");
    for problem in problems {
        let escaped = problem.replace('"', "\\\"");
        assert!(
            warnings.iter().any(|warning| warning.contains(&escaped)),
            "{problem}: {warnings:?}"
        );
    }
    let refused = send(cluster, form, "&fieldValidation=Strict", body.to_owned())
        .await
        .is(400)
        .json();
    let message = refused["message"].as_str().unwrap();
    let words = format!("strict decoding error: {}", problems.join(", "));
    assert!(message.contains(&words), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_and_duplicate_fields_are_ignored_warned_of_or_refused() {
    let cluster = start().await;
    let json = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","colour":"red"},"data":{"x":"1","x":"2"}}"#;
    check_levels(
        &cluster,
        JSON,
        json,
        &["unknown field \"metadata.colour\"", "duplicate field \"data.x\""],
    )
    .await;
    let yaml = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a, colour: red}\n";
    check_levels(&cluster, YAML, yaml, &["unknown field \"metadata.colour\""]).await;
    // In protobuf there are no names to be unknown: unknown numbers are passed over at every level.
    let mut raw = machinery_schema::protobuf::open_envelope(&protobuf("a"))
        .unwrap()
        .raw
        .to_vec();
    raw.extend_from_slice(&[0xfa, 0x07, 1, 9]);
    for level in ["Ignore", "Warn", "Strict"] {
        let body = close_envelope("v1", "ConfigMap", &raw);
        let made = send(&cluster, PROTOBUF, &format!("&fieldValidation={level}"), body)
            .await
            .is(201);
        assert!(!made.headers.contains_key("warning"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_revisions_are_conflicts() {
    let cluster = start().await;
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}});
    let first = cluster
        .admin()
        .post(CONFIG_MAPS, map.to_string())
        .await
        .is(201)
        .json();
    let path = format!("{CONFIG_MAPS}/a");
    let put = |object: Value| {
        let ask = cluster.admin().header("content-type", JSON);
        ask.send(Method::PUT, &path, Bytes::from(object.to_string()))
    };
    let mut changed = first.clone();
    changed["data"] = json!({"x": "1"});
    put(changed.clone()).await.is(200);
    changed["data"] = json!({"x": "2"});
    let refused = put(changed).await.is(409).json();
    assert_eq!(
        (refused["reason"].as_str(), refused["message"].as_str()),
        (
            Some("Conflict"),
            Some(
                "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"
            )
        )
    );
    let body = json!({"preconditions": {"resourceVersion": first["metadata"]["resourceVersion"]}});
    let delete = cluster.admin().header("content-type", JSON);
    delete
        .send(Method::DELETE, &path, Bytes::from(body.to_string()))
        .await
        .is(409);
    let queries = [
        ("uid=another", 409),
        ("resourceVersion=1", 409),
        ("uid=&resourceVersion=", 200),
    ];
    for (query, code) in queries {
        let path = format!("{path}?{query}");
        let asked = cluster.admin().send(Method::DELETE, &path, Bytes::new());
        asked.await.is(code);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_selectors_tokens_and_revisions_of_lists_are_refused() {
    let cluster = start().await;
    for (query, code, words) in [
        (
            "labelSelector=a%20in",
            400,
            "unable to parse requirement: found '' expected: '('",
        ),
        (
            "labelSelector=a%3D%3D%3Db",
            400,
            "unable to parse requirement: found '=', expected: identifier",
        ),
        (
            "labelSelector=-a",
            400,
            "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of",
        ),
        (
            "fieldSelector=spec.nope%3D1",
            400,
            "\"spec.nope\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (
            "fieldSelector=a",
            400,
            "invalid selector: 'a'; can't understand 'a'",
        ),
        ("limit=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax"),
        (
            "continue=nonsense",
            400,
            "invalid continue token: continue key is not valid: ",
        ),
        (
            "resourceVersion=x",
            400,
            "invalid resource version: resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
        (
            "resourceVersionMatch=Exact",
            422,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersion=999999999",
            504,
            "Timeout: Too large resource version: 999999999, current: ",
        ),
    ] {
        let refused = cluster.admin().get(&format!("{CONFIG_MAPS}?{query}")).await;
        assert_eq!(refused.code, code, "{query}: {}", refused.body);
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(words), "{query}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_expired_is_unauthorized() {
    let cluster = start().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}});
    let path = "/api/v1/namespaces/default/serviceaccounts";
    let account = cluster
        .admin()
        .post(path, account.to_string())
        .await
        .is(201)
        .json();
    let now = cluster.runtime.now().as_second();
    let issuer = "https://kubernetes.default.svc.cluster.local".to_owned();
    let token = |begins: i64, ends: i64| {
        let claims = Claims {
            aud: vec![issuer.clone()],
            iss: issuer.clone(),
            exp: ends,
            iat: begins,
            nbf: begins,
            sub: "system:serviceaccount:default:bot".to_owned(),
            kubernetes: KubernetesClaims {
                namespace: "default".to_owned(),
                serviceaccount: ObjectClaim {
                    name: "bot".to_owned(),
                    uid: account["metadata"]["uid"].as_str().unwrap().to_owned(),
                },
                ..KubernetesClaims::default()
            },
            ..Claims::default()
        };
        jwt::sign(&cluster.server.pki().service_accounts, &claims).unwrap()
    };
    let code = async |token: String| {
        let path = "/api/v1/namespaces/default/serviceaccounts/bot";
        cluster.nobody().token(&token).get(path).await.code.as_u16()
    };
    assert_eq!(
        code(token(now - 60, now + 3_600)).await,
        403,
        "known, and may not"
    );
    assert_eq!(code(token(now - 7_200, now - 3_600)).await, 401, "over");
    assert_eq!(code(token(now + 3_600, now + 7_200)).await, 401, "not yet begun");
}

/// A merge patch of a stored ConfigMap, with what it answers.
async fn patched(cluster: &Cluster, patch: &Value) -> Answer {
    let path = format!("{CONFIG_MAPS}/kept");
    let ask = cluster
        .admin()
        .header("content-type", "application/merge-patch+json");
    ask.send(Method::PATCH, &path, Bytes::from(patch.to_string()))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_and_generations_of_a_body() {
    let cluster = start().await;
    let config_map =
        |metadata: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string();
    let negative = config_map(json!({"name": "kept", "generation": -7}));
    let refused = cluster.admin().post(CONFIG_MAPS, negative).await.is(422).json();
    assert_eq!(
        refused["details"]["causes"][0]["message"],
        "Invalid value: -7: must be greater than or equal to 0"
    );
    let kept = config_map(json!({"name": "kept", "generation": 7}));
    let created = cluster.admin().post(CONFIG_MAPS, kept).await.is(201).json();
    assert_eq!(
        created["metadata"]["generation"], 7,
        "nobody counts it, and nobody drops it"
    );
    for version in ["abc", "-1", " 1"] {
        let answer = patched(&cluster, &json!({"metadata": {"resourceVersion": version}})).await;
        let message = answer.is(500).json()["message"].clone();
        assert_eq!(
            message,
            format!("strconv.ParseUint: parsing {version:?}: invalid syntax")
        );
    }
    let stale = json!({"metadata": {"resourceVersion": "007"}});
    assert_eq!(
        patched(&cluster, &stale).await.is(409).json()["reason"],
        "Conflict"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_no_object_can_have() {
    let cluster = start().await;
    for (name, problem) in [
        ("%2e%2e", r#""..": may not be '..'"#),
        ("%2e", r#"".": may not be '.'"#),
        ("a%25b", r#""a%b": may not contain '%'"#),
    ] {
        for method in [Method::GET, Method::DELETE] {
            let path = format!("{CONFIG_MAPS}/{name}");
            let refused = cluster
                .admin()
                .send(method, &path, Bytes::new())
                .await
                .is(400)
                .json();
            assert_eq!(refused["message"], format!("Name parameter invalid: {problem}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn binding_names_the_pod_of_its_address() {
    let cluster = start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let bind = async |name: Value, target: Value| {
        let binding =
            json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
        let path = format!("{pods}/web/binding");
        cluster.admin().post(&path, binding.to_string()).await
    };
    for name in [Value::Null, json!("other")] {
        let refused = bind(name, json!({})).await.is(400).json();
        assert_eq!(
            refused["message"],
            "name in URL does not match name in Binding object"
        );
    }
    let refused = bind(json!("web"), json!({})).await.is(500).json();
    assert_eq!(refused["message"], "target.name: Required value");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_id_is_in_every_answer() {
    let cluster = start().await;
    let audit_id = |answer: Answer| answer.headers["audit-id"].to_str().unwrap().to_owned();
    let made = audit_id(cluster.nobody().get("/healthz").await);
    let dashes: Vec<usize> = made.match_indices('-').map(|(at, _)| at).collect();
    assert_eq!((made.len(), dashes), (36, vec![8, 13, 18, 23]), "a UUID: {made}");
    let given = cluster.nobody().header("audit-id", "mine").get("/healthz").await;
    assert_eq!(audit_id(given), "mine");
}
