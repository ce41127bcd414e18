//! Requests for certificates: many, and such as cannot be read.

use super::{Scene, delete, named, status};
use anyhow::{Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use machinery_runtime::Runtime;
use serde_json::json;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// Bytes of a request that is as large as an object may be.
const HUGE: usize = 900_000;
/// Requests of one turn, half of which stay.
const OF_TURN: usize = 10;

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
}

/// Sequences in sequences, each of which says that the rest is its own.
fn nested(depth: usize) -> Vec<u8> {
    let levels = (0..depth).rev().flat_map(|left| {
        let [_, _, _, _, a, b, c, d] = (left * 6).to_be_bytes();
        [0x30, 0x84, a, b, c, d]
    });
    levels.collect()
}

/// The content of one request: a good one, or one of those that are not.
fn content(random: u64) -> Result<String> {
    Ok(match random % 5 {
        0 | 1 => {
            let key = rcgen::KeyPair::generate()?;
            let names = vec![format!("mallory-{random:x}")];
            rcgen::CertificateParams::new(names)?
                .serialize_request(&key)?
                .pem()?
        }
        2 => pem(&vec![0x30; HUGE * 3 / 4]),
        3 => pem(&nested(HUGE / 8)),
        _ => pem(&[0x30]).repeat(HUGE / 100),
    })
}

/// Requests come, by a user who may send them, and half of them go.
pub(super) async fn requests(scene: Scene, runtime: Runtime) -> Result<()> {
    let mut client = scene.mallory.target.connect().await?;
    let mut made = 0;
    for turn in 0..OF_TURN {
        let name = named("mallory", &runtime);
        let spec = json!({"request": STANDARD.encode(content(runtime.random_u64())?), "usages": ["client auth"],
            "signerName": "kubernetes.io/kube-apiserver-client"});
        let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": name}, "spec": spec});
        let code = status(&mut client, Method::POST, REQUESTS, request.to_string()).await?;
        made += usize::from(code.is_success());
        if turn % 2 == 0 {
            delete(&mut client, &format!("{REQUESTS}/{name}")).await?;
        }
    }
    ensure!(made > 0, "none was taken");
    Ok(())
}
