use super::issuing::in_turn;
use super::key::{KeyError, generate};
use super::requests::{Answer, Chain, answer_of};
use super::state::{Issued, State};
use super::*;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::PodCertificateRequest;
use machinery_x509::{CertificateRequest, pem_blocks, pem_text};
use rcgen::{KeyPair, PublicKeyData};
use serde_json::{Value, json};

#[test]
fn pod_key_of_each_type_signs_its_request() {
    for (key_type, length) in [("ECDSAP256", 65), ("ECDSAP384", 97), ("ED25519", 32)] {
        let made = generate(key_type).unwrap();
        let text = std::str::from_utf8(&made.key).unwrap();
        assert_eq!(pem_blocks(&made.key)[0].label, "PRIVATE KEY");
        let request = pem_text("CERTIFICATE REQUEST", &made.request);
        let read = CertificateRequest::from_pem(request.as_bytes()).expect(key_type);
        assert_eq!(read.common_name, "", "the signer decides about the subject");
        let pair = match key_type {
            // Without its public key, as Go and OpenSSL write it.
            "ED25519" => {
                assert_eq!(pem_blocks(&made.key)[0].content.len(), 48);
                KeyPair::try_from(pem_blocks(&made.key)[0].content.as_slice()).unwrap()
            }
            _ => KeyPair::from_pem(text).unwrap(),
        };
        assert_eq!(pair.der_bytes().len(), length, "{key_type}");
        let key = pair.der_bytes();
        assert!(
            made.request.windows(key.len()).any(|own| own == key),
            "{key_type}"
        );
        assert_eq!(format!("{made:?}"), "KeyAndProof { .. }");
    }
}

/// More keys for one namespace than the machine has threads for, all of which take until that of another namespace is made.
#[tokio::test]
async fn pod_keys_of_one_namespace_keep_no_other_namespace_waiting() {
    let runtime = Runtime::real();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (is_made, end) = (Arc::new(Mutex::new(false)), Arc::new(parking_lot::Condvar::new()));
    let mut hogs = Vec::new();
    for _ in 0..2 * processors + 4 {
        let (own, is_made, end) = (runtime.clone(), Arc::clone(&is_made), Arc::clone(&end));
        let wait = move || end.wait_while(&mut is_made.lock(), |is_made| !*is_made);
        hogs.push(runtime.spawn("hog", async move { in_turn(&own, "hog", wait).await }));
    }
    while runtime.heavy_figures().waiting + runtime.heavy_figures().running < hogs.len() {
        tokio::task::yield_now().await;
    }
    let other = in_turn(&runtime, "other", || ());
    let made = runtime.timeout(Duration::from_secs(20), other).await;
    *is_made.lock() = true;
    end.notify_all();
    assert!(
        made.is_ok(),
        "the other namespace waits for all keys of the first"
    );
}

#[test]
fn pod_key_of_a_type_that_is_not_made_here_is_refused() {
    let refused = generate("ECDSAP521").unwrap_err();
    assert!(matches!(refused, KeyError::Unsupported(_)));
    assert_eq!(
        refused.to_string(),
        "key type \"ECDSAP521\" is not supported by this node, which makes RSA3072, RSA4096, ECDSAP256, ECDSAP384 and ED25519"
    );
}

fn request(status: Value) -> PodCertificateRequest {
    let spec = json!({"signerName": "s.io/s", "podName": "p", "podUID": "u", "serviceAccountName": "a", "serviceAccountUID": "b",
        "nodeName": "n", "nodeUID": "m", "stubPKCS10Request": ""});
    serde_json::from_value(
        json!({"metadata": {"name": "r", "namespace": "n"}, "spec": spec, "status": status}),
    )
    .unwrap()
}

fn answered(kind: &str, rest: Value) -> Value {
    let mut status = json!({"conditions": [{"type": kind, "status": "True", "reason": "Why", "message": "so",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    status
        .as_object_mut()
        .unwrap()
        .extend(rest.as_object().unwrap().clone());
    status
}

#[test]
fn pod_certificate_request_has_the_answer_of_its_condition() {
    let why = || ("Why".to_owned(), "so".to_owned());
    let check = |status: Value, expected: Option<Answer>| assert_eq!(answer_of(&request(status)), expected);
    check(Value::Null, None);
    check(json!({}), None);
    check(answered("Other", json!({})), None);
    check(
        answered("Denied", json!({})),
        Some(Answer::Denied(why().0, why().1)),
    );
    check(
        answered("Failed", json!({})),
        Some(Answer::Failed(why().0, why().1)),
    );
    let own = pem_text("CERTIFICATE", &[1; 60]);
    let chain = format!(
        "between\n{}{own}after",
        own.replace("BEGIN CERTIFICATE-----\n", "BEGIN CERTIFICATE-----\nA: b\n\n")
    );
    let times = json!({"certificateChain": chain, "notBefore": "2026-01-01T00:00:00Z", "notAfter": "2026-01-02T00:00:00Z",
        "beginRefreshAt": "2026-01-01T12:00:00Z"});
    let issued = Chain {
        text: own.repeat(2),
        begin_refresh_at: "2026-01-01T12:00:00Z".parse().unwrap(),
        not_after: "2026-01-02T00:00:00Z".parse().unwrap(),
    };
    check(answered("Issued", times), Some(Answer::Issued(issued)));
}

#[test]
fn pod_certificate_state_has_upstreams_name_and_words() {
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let credentials = Arc::new(Credentials {
        key: Arc::from(*b"key"),
        chain: Arc::from(*b"chain"),
    });
    let issued = State::Issued(Issued {
        credentials: credentials.clone(),
        refresh_at: at("2026-01-01T12:00:00Z"),
        not_after: at("2026-01-01T13:00:00Z"),
    });
    assert_eq!(issued.credentials(), Ok(credentials));
    for (now, name) in [
        ("2026-01-01T12:10:00Z", "fresh"),
        ("2026-01-01T12:10:01Z", "overdue_for_refresh"),
        ("2026-01-01T13:00:01Z", "expired"),
    ] {
        assert_eq!(issued.name(at(now)), name, "{now}");
    }
    let why = || ("Why".to_owned(), "so".to_owned());
    for (state, name, words) in [
        (
            State::Waiting(None),
            "not_yet_issued",
            "credential bundle is not issued yet",
        ),
        (
            State::Waiting(Some("away".into())),
            "not_yet_issued",
            "credential bundle is not issued yet: away",
        ),
        (
            State::Denied(why().0, why().1),
            "denied",
            "PodCertificateRequest was permanently denied: reason=\"Why\" message=\"so\"",
        ),
        (
            State::Failed(why().0, why().1),
            "failed",
            "PodCertificateRequest was permanently failed: reason=\"Why\" message=\"so\"",
        ),
    ] {
        assert_eq!(state.name(at("2026-01-01T12:00:00Z")), name);
        assert_eq!(state.credentials(), Err(words.to_owned()));
    }
}
