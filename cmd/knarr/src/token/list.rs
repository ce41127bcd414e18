//! The list of tokens, in columns of kubeadm's. Secrets are not in it: the id is enough to delete one.

use super::{NAMESPACE, TYPE, secrets};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use machinery_client::Client;
use serde_json::Value;
use std::io::Write;

const HEAD: [&str; 6] = ["ID", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA GROUPS"];

pub(super) async fn run(client: &Client, now: Timestamp) -> anyhow::Result<()> {
    let query = [("fieldSelector", format!("type={TYPE}"))];
    let list: Value = client.list_as(&secrets(), NAMESPACE, &query).await?;
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows = items.iter().map(|secret| row(secret, now));
    let rows: Vec<[String; 6]> = std::iter::once(HEAD.map(str::to_owned)).chain(rows).collect();
    Ok(write!(std::io::stdout(), "{}", table(&rows))?)
}

fn row(secret: &Value, now: Timestamp) -> [String; 6] {
    let text = |key: &str| {
        let bytes = STANDARD.decode(secret["data"][key].as_str().unwrap_or_default());
        String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
    };
    let expiration = text("expiration");
    let left = match expiration.parse::<Timestamp>() {
        Ok(end) if end > now => format!("{:#}", whole_seconds(end, now)),
        Ok(_) => "<expired>".to_owned(),
        Err(_) if expiration.is_empty() => "<forever>".to_owned(),
        Err(_) => "<invalid>".to_owned(),
    };
    let usages = ["authentication", "signing"].into_iter();
    let usages: Vec<&str> = usages
        .filter(|own| text(&format!("usage-bootstrap-{own}")) == "true")
        .collect();
    let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
    [
        text("token-id"),
        left,
        or(expiration, "<never>"),
        or(usages.join(","), "<none>"),
        or(text("description"), "<none>"),
        or(text("auth-extra-groups"), "<none>"),
    ]
}

fn whole_seconds(end: Timestamp, now: Timestamp) -> jiff::SignedDuration {
    jiff::SignedDuration::from_secs(end.duration_since(now).as_secs())
}

/// Columns as wide as their widest cell, three blanks apart; nothing of a cell ends the line.
fn table(rows: &[[String; 6]]) -> String {
    let clean = |cell: &String| cell.replace(char::is_control, " ");
    let rows: Vec<[String; 6]> = rows.iter().map(|row| row.each_ref().map(clean)).collect();
    let width = |at: usize| {
        rows.iter()
            .map(|row| row[at].chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let line = |row: &[String; 6]| {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let cells: Vec<String> = cells.collect();
        format!("{}\n", cells.join("   ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_are_listed_without_their_secrets() {
        let encoded = |text: &str| STANDARD.encode(text);
        let secret = json!({"data": {"token-id": encoded("abcdef"), "token-secret": encoded("0123456789abcdef"),
            "expiration": encoded("2026-11-28T13:30:00Z"), "usage-bootstrap-signing": encoded("true"),
            "description": encoded("a\nb")}});
        let now = "2026-11-28T12:00:00.25Z".parse().unwrap();
        let found = table(&[row(&secret, now)]);
        assert_eq!(
            found,
            "abcdef   1h 29m 59s   2026-11-28T13:30:00Z   signing   a b   <none>\n"
        );
        let ends = |text: &str| row(&json!({"data": {"expiration": encoded(text)}}), now)[1].clone();
        assert_eq!(ends("2026-11-28T12:00:00Z"), "<expired>");
        assert_eq!(ends(""), "<forever>");
        assert_eq!(ends("soon"), "<invalid>");
    }
}
