//! Flags of `knarr agent` about static pods of a URL. Names are the kubelet's.

use crate::agent_eviction::duration;
use crate::secret::Secret;
use clap::Args;
use node_kubelet::static_pods::StaticPodUrl;
use serde_json::Value;
use std::time::Duration;

#[derive(Args, Debug, Clone)]
pub(crate) struct ManifestUrlArguments {
    /// URL of more pods that run without an API server, upstream's staticPodURL
    #[arg(long)]
    manifest_url: Option<String>,
    /// Headers of its requests: name:value,…; it may be given several times
    #[arg(long, value_name = "HEADERS", value_parser = readable_headers, requires = "manifest_url")]
    manifest_url_header: Vec<Secret>,
    /// Time between two requests of --manifest-url
    #[arg(long, default_value = "20s", value_parser = duration)]
    http_check_frequency: Duration,
}

/// Names and values of headers.
type Headers = Vec<(String, String)>;

impl ManifestUrlArguments {
    /// The source, where there is one.
    pub(crate) fn source(&self, decode: fn(&[u8]) -> Result<Value, String>) -> Option<StaticPodUrl> {
        let headers = self.manifest_url_header.iter();
        Some(StaticPodUrl {
            url: self.manifest_url.clone().filter(|url| !url.is_empty())?,
            headers: headers
                .filter_map(|own| headers_of(own.reveal()).ok())
                .flatten()
                .collect(),
            period: self.http_check_frequency,
            decode,
        })
    }
}

/// The text of headers, if they can be read.
fn readable_headers(text: &str) -> Result<Secret, String> {
    headers_of(text).map(|_| Secret::from(text.to_owned()))
}

/// Headers as upstream's flag has them, or as the object of a KubeletConfiguration, whose values may have commas.
fn headers_of(text: &str) -> Result<Headers, String> {
    if text.starts_with('{') {
        return of_object(text);
    }
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| {
        let (name, value) = pair
            .split_once(':')
            .ok_or("malformed pair, expect string:string")?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    });
    pairs.collect()
}

fn of_object(text: &str) -> Result<Headers, String> {
    let map: std::collections::BTreeMap<String, Vec<String>> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let pairs = map
        .into_iter()
        .flat_map(|(name, values)| values.into_iter().map(move |value| (name.clone(), value)));
    Ok(pairs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        own: ManifestUrlArguments,
    }

    fn parsed(flags: &[&str]) -> Result<Option<StaticPodUrl>, String> {
        let words = ["agent"].into_iter().chain(flags.iter().copied());
        let flags = Flags::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(flags.own.source(|_| Err(String::new())))
    }

    #[test]
    fn manifest_url_flags_are_upstreams() {
        assert!(parsed(&[]).unwrap().is_none());
        assert!(parsed(&["--manifest-url="]).unwrap().is_none());
        let own = parsed(&[
            "--manifest-url=https://pods.test/",
            "--manifest-url-header=a:hello, b:again,,c : http://world",
            "--manifest-url-header=b:beautiful",
            r#"--manifest-url-header={"d": ["1, 2", "3"]}"#,
        ]);
        let own = own.unwrap().unwrap();
        assert_eq!(own.period, Duration::from_secs(20));
        let headers: Vec<(&str, &str)> = own
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let world = "http://world";
        assert_eq!(
            headers,
            [
                ("a", "hello"),
                ("b", "again"),
                ("c", world),
                ("b", "beautiful"),
                ("d", "1, 2"),
                ("d", "3")
            ]
        );
        let refused = |flag: &str| parsed(&["--manifest-url=http://a/", flag]).unwrap_err();
        assert!(refused("--manifest-url-header=a").contains("malformed pair, expect string:string"));
        assert!(refused("--http-check-frequency=-1s").contains("must not be negative"));
    }
}
