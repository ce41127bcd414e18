//! Permitted writes by the rights on `signers`.

use super::subject_restriction::CLIENT_SIGNER;
use super::*;
use crate::{AdmissionChain, Operation};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;

/// A request for the certificate of `bob` in `system:masters`.
const OF_MASTERS: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIaE1JR0pBZ0VBTUNjeEZ6QVZCZ05WQkFvTURuTjVjM1JsYlRwdFlYTjBaWEp6TVF3d0NnWURWUVFEREFOaQpiMkl3V1RBVEJnY3Foa2pPUFFJQkJnZ3Foa2pPUFFNQkJ3TkNBQVRkbTV0aXl2L3U2dHFUdnpZUmJ0L0FlTVFQCkVCRnMzUDdnV3hNVjJxL3NIS0xuQWJpTncvS3ZzTndOQnBQUThIWjRKaC9pZVNSaWJKN3JLd2xHQk4wWm9BQXcKQ2dZSUtvWkl6ajBFQXdJRFJ3QXdSQUlnRjVJcHFlS3MwZVp6c3FnYmJDSVJSbks4OUV5QUE4NTJiQWJkcXgrcQpJVVVDSUVyeUw3djRad01BenJlRmJOTHdQOTRLRVAzQ0hxMUVOditjdzNDQXV5VmgKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";

/// The right to a verb on a signer, or on a domain's; without one nothing is decided.
struct Grant(Option<(&'static str, &'static str)>);

#[async_trait]
impl Permissions for Grant {
    async fn has(&self, _: &UserInfo, right: Right<'_>) -> Result<bool, AdmissionError> {
        let own = self.0.ok_or(AdmissionError::Busy)?;
        Ok((right.group, right.resource) == (GROUP, "signers") && own == (right.verb, right.name))
    }
}

/// Asks of a write: the resource with its subresource, what is written over what, and what its user may.
struct Write {
    resource: &'static str,
    object: String,
    old: Option<String>,
}

impl Write {
    async fn allowed_by(&self, verb: &'static str, signer: &'static str) -> Result<(), String> {
        let checked = self.checked(Grant(Some((verb, signer)))).await;
        checked.map_err(|error| error.to_string())
    }

    async fn checked(&self, grant: Grant) -> Result<(), AdmissionError> {
        let permissions: Arc<dyn Permissions> = Arc::new(grant);
        let chain = AdmissionChain::new(vec![
            Box::new(CertificateApproval(Arc::clone(&permissions))),
            Box::new(CertificateSigning(Arc::clone(&permissions))),
            Box::new(ClusterTrustBundleAttest(permissions)),
            Box::new(CertificateSubjectRestriction),
        ]);
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let user = UserInfo::named("carol", [UserInfo::AUTHENTICATED]);
        let request = Request {
            user: &user,
            operation: match self.old {
                Some(_) => Operation::Update,
                None => Operation::Create,
            },
            group: GROUP,
            kind: "",
            resource,
            subresource,
            namespace: "",
            name: "x",
            dry_run: false,
            remarks: &crate::Unheard,
            host: None,
            reinvocation: None,
        };
        let tree = |text: &String| Tree::from_json(text).unwrap();
        let old = self.old.as_ref().map(tree);
        chain
            .validate(&request, Some(&tree(&self.object)), old.as_ref())
            .await
    }
}

fn named(signer: &str, rest: &str) -> String {
    format!(r#"{{"metadata":{{"name":"x"}},"spec":{{"signerName":"{signer}"}}{rest}}}"#)
}

fn change(resource: &'static str, old: &str, new: &str) -> Write {
    let (object, old) = (named("a.io/s", new), Some(named("a.io/s", old)));
    Write {
        resource,
        object,
        old,
    }
}

fn bundle(old: Option<&str>, new: &str) -> Write {
    let of = |more: &str| {
        format!(r#"{{"metadata":{{"name":"x"{more}}},"spec":{{"signerName":"a.io/s","trustBundle":""}}}}"#)
    };
    Write {
        resource: "clustertrustbundles",
        object: of(new),
        old: old.map(of),
    }
}

const CERTIFICATE: &str = r#","status":{"certificate":"bmV3"}"#;
const CONDITION: &str = r#","status":{"conditions":[{"type":"Failed"}]}"#;

#[tokio::test]
async fn signer_right_that_nobody_decided_is_no_refusal() {
    let write = change("certificatesigningrequests/approval", "", CONDITION);
    let checked = write.checked(Grant(None)).await;
    assert!(matches!(checked, Err(AdmissionError::Busy)), "{checked:?}");
}

#[tokio::test]
async fn signer_right_matches_name_or_domain() {
    let writes = [
        (
            "approve",
            change("certificatesigningrequests/approval", "", CONDITION),
            "approve requests with",
        ),
        (
            "sign",
            change("certificatesigningrequests/status", "", CERTIFICATE),
            "sign requests with",
        ),
        (
            "sign",
            change("certificatesigningrequests/status", "", CONDITION),
            "sign requests with",
        ),
        ("attest", bundle(None, ""), "attest for"),
        ("attest", bundle(Some(""), r#","labels":{"a":"b"}"#), "attest for"),
    ];
    for (verb, write, words) in writes {
        let what = format!("{verb} {} {}", write.resource, write.object);
        for signer in ["a.io/s", "a.io/*"] {
            assert_eq!(write.allowed_by(verb, signer).await, Ok(()), "{what}");
        }
        for (other_verb, signer) in [
            ("update", "a.io/s"),
            (verb, "a.io/t"),
            (verb, "b.io/*"),
            (verb, "*"),
        ] {
            let refused = write.allowed_by(other_verb, signer).await.unwrap_err();
            let said = format!("user not permitted to {words} signerName \"a.io/s\"");
            assert!(
                refused.contains(&said),
                "{what} with {other_verb} on {signer}: {refused}"
            );
        }
    }
}

/// Writes that speak for no signer.
#[tokio::test]
async fn other_writes_need_no_right() {
    let writes = [
        Write {
            resource: REQUESTS,
            object: named("a.io/s", ""),
            old: None,
        },
        change("certificatesigningrequests/status", CERTIFICATE, CERTIFICATE),
        Write {
            resource: "clustertrustbundles",
            object: named("", ""),
            old: None,
        },
        bundle(Some(r#","finalizers":["a.io/f"]"#), r#","ownerReferences":[]"#),
    ];
    for write in writes {
        let allowed = write.allowed_by("none", "none").await;
        assert_eq!(allowed, Ok(()), "{} {}", write.resource, write.object);
    }
}

/// The signer is that of the stored request, whatever the write says.
#[tokio::test]
async fn signer_is_taken_from_stored_request() {
    let write = Write {
        resource: "certificatesigningrequests/approval",
        object: named("b.io/s", CONDITION),
        old: Some(named("a.io/s", "")),
    };
    assert!(write.allowed_by("approve", "b.io/s").await.is_err());
    assert_eq!(write.allowed_by("approve", "a.io/s").await, Ok(()));
}

#[tokio::test]
async fn signing_request_for_masters_is_refused() {
    let of = |signer: &str| Write {
        resource: REQUESTS,
        object: format!(
            r#"{{"metadata":{{"name":"x"}},"spec":{{"signerName":"{signer}","request":"{OF_MASTERS}"}}}}"#
        ),
        old: None,
    };
    let refused = of(CLIENT_SIGNER)
        .allowed_by("sign", CLIENT_SIGNER)
        .await
        .unwrap_err();
    let said = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    assert!(refused.contains(said), "{refused}");
    assert_eq!(of("a.io/s").allowed_by("none", "none").await, Ok(()));
}

/// A text of two blocks, of which another reader than the signer's took the first.
#[tokio::test]
async fn signing_request_is_read_by_one_reader() {
    let glued = "-----BEGIN CERTIFICATE REQUEST-----\nAQID-----END CERTIFICATE REQUEST-----\n";
    let masters = STANDARD.decode(OF_MASTERS).unwrap();
    let text = STANDARD.encode([glued.as_bytes(), &masters].concat());
    let write = Write {
        resource: REQUESTS,
        object: format!(
            r#"{{"metadata":{{"name":"x"}},"spec":{{"signerName":"{CLIENT_SIGNER}","request":"{text}"}}}}"#
        ),
        old: None,
    };
    let refused = write.allowed_by("sign", CLIENT_SIGNER).await.unwrap_err();
    assert!(
        refused.contains("system:masters group is not allowed"),
        "{refused}"
    );
}
