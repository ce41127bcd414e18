//! `knarr token`: bootstrap tokens, by which nodes join. Names and defaults are those of `kubeadm token`.

mod join_token;
mod list;

pub(crate) use join_token::{JoinToken, authority_hash};

use crate::kubeconfig::KubeconfigFile;
use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use join_token::{ID_LENGTH, SECRET_LENGTH, is_part};
use machinery_client::{ApiResource, Client, DeleteOptions};
use machinery_meta::ObjectKey;
use machinery_runtime::Runtime;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";
const PREFIX: &str = "bootstrap-token-";
/// The group that a node's first request is approved for (`apiserver/auth/src/bootstrap/own.jsons`).
const NODE_GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
const GROUP_PREFIX: &str = "system:bootstrappers:";
const USAGES: [&str; 2] = ["signing", "authentication"];

/// The flags.
#[derive(Debug, Args)]
pub(crate) struct TokenArguments {
    #[command(subcommand)]
    command: TokenCommand,
    /// The server's data directory, whose administrator's kubeconfig is used
    #[arg(long, global = true, default_value = crate::server::DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    /// Kubeconfig of an administrator [default: admin.kubeconfig in the data directory]
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Creates a token and prints it, with the hash of the cluster's authority
    Create(CreateArguments),
    /// Lists tokens, without their secrets
    List,
    /// Deletes tokens
    Delete(DeleteArguments),
}

#[derive(Debug, Args)]
struct CreateArguments {
    /// ID.SECRET, six and sixteen of a-z and 0-9 [default: random]
    token: Option<String>,
    /// Time after which the token ends and is deleted; 0 is never
    #[arg(long, default_value = "24h0m0s", value_parser = ttl)]
    ttl: SignedDuration,
    /// Groups of the token's bearer; those of the default may request the certificate of a node
    #[arg(long, value_delimiter = ',', default_value = NODE_GROUP)]
    groups: Vec<String>,
    /// Uses of the token: it authenticates its bearer, it signs cluster-info
    #[arg(long, value_delimiter = ',', default_values = USAGES)]
    usages: Vec<String>,
    /// Text for people
    #[arg(long, default_value = "")]
    description: String,
    /// Print the command by which a node joins
    #[arg(long)]
    print_join_command: bool,
}

#[derive(Debug, Args)]
struct DeleteArguments {
    /// Their ids, or the tokens themselves
    #[arg(required = true)]
    tokens: Vec<String>,
}

fn ttl(text: &str) -> Result<SignedDuration, String> {
    if text == "0" {
        return Ok(SignedDuration::ZERO);
    }
    let parsed = text.parse::<SignedDuration>().ok();
    let positive = parsed.filter(|own| !own.is_negative());
    positive.ok_or_else(|| "give a duration, as in 2h or 30m, or 0".to_owned())
}

pub(crate) fn run(arguments: &TokenArguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(act(arguments))
}

/// The API as the administrator, and what the file says of the cluster.
struct Cluster {
    client: Client,
    file: KubeconfigFile,
    runtime: Runtime,
}

async fn act(arguments: &TokenArguments) -> anyhow::Result<()> {
    let own = || arguments.data_dir.join("admin.kubeconfig");
    let path = arguments.kubeconfig.clone().unwrap_or_else(own);
    if !path.try_exists()? {
        bail!(
            "{} is not there: run this on the server's machine with its --data-dir, or give --kubeconfig",
            path.display()
        );
    }
    let runtime = Runtime::real();
    let cluster = Cluster {
        client: Client::from_kubeconfig(&path, runtime.clone()).await?,
        file: KubeconfigFile::read(&path)?,
        runtime,
    };
    match &arguments.command {
        TokenCommand::Create(own) => create(&cluster, own).await,
        TokenCommand::List => list::run(&cluster.client, cluster.runtime.now()).await,
        TokenCommand::Delete(own) => delete(&cluster, &own.tokens).await,
    }
}

fn secrets() -> ApiResource {
    ApiResource {
        group: "".into(),
        version: "v1".into(),
        plural: "secrets".into(),
        kind: "Secret".into(),
        namespaced: true,
    }
}

async fn create(cluster: &Cluster, arguments: &CreateArguments) -> anyhow::Result<()> {
    let mut token = match &arguments.token {
        Some(text) => text.parse::<JoinToken>()?,
        None => random(&cluster.runtime),
    };
    let authority = cluster
        .file
        .authority()
        .context("the kubeconfig has no authority")?;
    let hash = machinery_x509::public_key_pin(&authority).context("the authority cannot be read")?;
    token.authority_hash = Some(hash);
    let body = secret(arguments, &token, cluster.runtime.now())?;
    let created = cluster.client.create(&secrets(), NAMESPACE, &body).await;
    created.with_context(|| format!("creating the token {}", token.id))?;
    let mut out = std::io::stdout();
    if !arguments.print_join_command {
        return Ok(writeln!(out, "{token}")?);
    }
    let server = join_address(cluster).await?;
    Ok(writeln!(out, "knarr agent --server {server} --token {token}")?)
}

/// The address at which nodes reach the server, as `cluster-info` says it.
async fn join_address(cluster: &Cluster) -> anyhow::Result<String> {
    let maps = ApiResource {
        plural: "configmaps".into(),
        kind: "ConfigMap".into(),
        ..secrets()
    };
    let key = ObjectKey::new("kube-public", "cluster-info");
    let map: Value = cluster
        .client
        .get_as(&maps, &key)
        .await
        .context("reading cluster-info")?;
    let text = map["data"]["kubeconfig"].as_str().unwrap_or_default();
    let file: Value = serde_json::from_str(text).context("reading cluster-info")?;
    let server = file["clusters"][0]["cluster"]["server"].as_str();
    server.map(str::to_owned).context("cluster-info names no server")
}

fn random(runtime: &Runtime) -> JoinToken {
    /// 36 letters: bytes of the last part of the range would make some likelier.
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let word = |length: usize| {
        let mut word = String::new();
        while word.len() < length {
            let mut byte = [0];
            runtime.fill(&mut byte);
            if byte[0] < 252 {
                word.push(char::from(LETTERS[usize::from(byte[0]) % LETTERS.len()]));
            }
        }
        word
    };
    JoinToken {
        id: word(ID_LENGTH),
        secret: word(SECRET_LENGTH),
        authority_hash: None,
    }
}

/// The Secret of a token.
fn secret(arguments: &CreateArguments, token: &JoinToken, now: Timestamp) -> anyhow::Result<Value> {
    if let Some(wrong) = arguments
        .usages
        .iter()
        .find(|own| !USAGES.contains(&own.as_str()))
    {
        bail!("--usages {wrong}: there are signing and authentication");
    }
    if let Some(wrong) = arguments.groups.iter().find(|own| !own.starts_with(GROUP_PREFIX)) {
        bail!("--groups {wrong}: groups of tokens begin with {GROUP_PREFIX}");
    }
    let mut texts = vec![
        ("token-id".to_owned(), token.id.clone()),
        ("token-secret".to_owned(), token.secret.clone()),
        ("auth-extra-groups".to_owned(), arguments.groups.join(",")),
    ];
    texts.extend(
        arguments
            .usages
            .iter()
            .map(|own| (format!("usage-bootstrap-{own}"), "true".to_owned())),
    );
    if !arguments.description.is_empty() {
        texts.push(("description".to_owned(), arguments.description.clone()));
    }
    if !arguments.ttl.is_zero() {
        let end = now
            .checked_add(arguments.ttl)
            .context("--ttl: that is too long")?;
        texts.push((
            "expiration".to_owned(),
            end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        ));
    }
    let data: serde_json::Map<String, Value> = texts
        .into_iter()
        .map(|(key, text)| (key, STANDARD.encode(text).into()))
        .collect();
    let name = format!("{PREFIX}{}", token.id);
    Ok(
        json!({"apiVersion": "v1", "kind": "Secret", "type": TYPE, "data": data,
        "metadata": {"name": name, "namespace": NAMESPACE}}),
    )
}

async fn delete(cluster: &Cluster, tokens: &[String]) -> anyhow::Result<()> {
    for text in tokens {
        let id = match text.parse::<JoinToken>() {
            Ok(token) => token.id,
            Err(_) if is_part(text, ID_LENGTH) => text.clone(),
            Err(error) => return Err(error.into()),
        };
        let key = ObjectKey::new(NAMESPACE, format!("{PREFIX}{id}"));
        let deleted = cluster
            .client
            .delete(&secrets(), &key, &DeleteOptions::default())
            .await;
        deleted.with_context(|| format!("deleting the token {id}"))?;
        writeln!(std::io::stdout(), "bootstrap token \"{id}\" deleted")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        own: CreateArguments,
    }

    fn made(flags: &[&str]) -> anyhow::Result<Value> {
        let line = Line::try_parse_from([&["create"], flags].concat())?;
        let token = "abcdef.0123456789abcdef".parse()?;
        secret(&line.own, &token, "2026-11-28T12:00:00.5Z".parse()?)
    }

    fn text(secret: &Value, key: &str) -> Option<String> {
        let encoded = secret["data"][key].as_str()?;
        String::from_utf8(STANDARD.decode(encoded).unwrap()).ok()
    }

    #[test]
    fn tokens_are_made_as_kubeadm_makes_them() {
        let secret = made(&[]).unwrap();
        assert_eq!(secret["metadata"]["name"], "bootstrap-token-abcdef");
        assert_eq!(secret["type"], TYPE);
        assert_eq!(text(&secret, "token-secret").unwrap(), "0123456789abcdef");
        assert_eq!(text(&secret, "auth-extra-groups").unwrap(), NODE_GROUP);
        assert_eq!(text(&secret, "expiration").unwrap(), "2026-11-29T12:00:00Z");
        for usage in USAGES {
            assert_eq!(
                text(&secret, &format!("usage-bootstrap-{usage}")).unwrap(),
                "true"
            );
        }
        let secret = made(&["--ttl=0", "--usages=signing", "--description=of a test"]).unwrap();
        assert_eq!(text(&secret, "expiration"), None);
        assert_eq!(text(&secret, "usage-bootstrap-authentication"), None);
        assert_eq!(text(&secret, "description").unwrap(), "of a test");
        for wrong in [
            "--ttl=-1h",
            "--ttl=soon",
            "--usages=flying",
            "--groups=system:masters",
        ] {
            assert!(made(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn random_tokens_are_tokens() {
        let runtime = Runtime::real();
        let token = random(&runtime);
        assert_eq!(token.to_string().parse::<JoinToken>(), Ok(token.clone()));
        assert_ne!(random(&runtime), token);
    }
}
