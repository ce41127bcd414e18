//! Reading YAML: meaning, duplicates, documents, words, bombs.

use super::{SHORT_BYTES, decode_document, decode_short_document, duplicate_key, yaml_to_json};

#[track_caller]
fn check(yaml: &str, expected: &str) {
    let got = yaml_to_json(yaml.as_bytes()).unwrap_or_else(|error| format!("error: {error}"));
    assert_eq!(got, expected, "{yaml}");
}

#[test]
fn scalars_mean_what_they_mean_in_go() {
    check(
        "a: yes\nb: 0644\nc: 1.5\nd: ~\ne: 'yes'\nf: on\n",
        r#"{"a":true,"b":420,"c":1.5,"d":null,"e":"yes","f":true}"#,
    );
    check(
        "- 1\n- -2\n- 0x10\n- 1e3\n- 2026-01-01\n",
        r#"[1,-2,16,1000,"2026-01-01"]"#,
    );
    check("1: a\ntrue: b\n'x y': c\n", r#"{"1":"a","true":"b","x y":"c"}"#);
    check("a: |\n  x\n  y\nb: >-\n  x\n  y\n", r#"{"a":"x\ny\n","b":"x y"}"#);
    check("{}", "{}");
    check("[]", "[]");
    check(r#"{"a": "b", "c": [1, 2]}"#, r#"{"a":"b","c":[1,2]}"#);
}

#[test]
fn anchors_and_merges_expand() {
    check(
        "u: &a {p: 1}\nv: *a\nw:\n  <<: *a\n  q: 2\n",
        r#"{"u":{"p":1},"v":{"p":1},"w":{"q":2,"p":1}}"#,
    );
}

#[test]
fn keys_may_come_twice_for_strict_decoding_to_see() {
    check("a: 1\na: 2\n", r#"{"a":1,"a":2}"#);
    assert_eq!(
        duplicate_key(b"a:\n  b: 1\n  c: 2\n  b: 3\n"),
        Some((4, "b".to_owned()))
    );
    assert_eq!(duplicate_key(b"a: {b: 1}\nc: {b: 1}\n"), None);
}

#[test]
fn documents_are_read_as_json_first() {
    let read =
        |text: &str| decode_document(text.as_bytes()).map(|own| (own.tree.root().to_json(), own.duplicate));
    let plain = |json: &str| Ok((json.to_owned(), None));
    assert_eq!(
        read(r#" {"a":[1.0,2e2,"\ud83d\ude00"]}"#),
        plain("{\"a\":[1,200,\"\u{1f600}\"]}")
    );
    assert_eq!(read("a: [1.0, 2e2]"), plain(r#"{"a":[1,200]}"#));
    assert_eq!(read("{a: b}"), plain(r#"{"a":"b"}"#));
    let twice = Some((2, "b".to_owned()));
    assert_eq!(
        read("{\"a\":{\"b\":1,\n\"b\":2}}"),
        Ok((r#"{"a":{"b":2}}"#.to_owned(), twice.clone()))
    );
    assert_eq!(
        read("a: {b: 1,\n  b: 2}"),
        Ok((r#"{"a":{"b":2}}"#.to_owned(), twice))
    );
    // JSON may nest as deep here as anywhere.
    let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    assert_eq!(read(&deep), plain(&deep));
    assert!(read(&format!("{}1", r#"{"a":"#.repeat(257))).is_err());
    assert!(decode_document(b"{\"a\":\"\xff\"}").is_err());
}

#[test]
fn short_documents_are_those_whose_length_bounds_the_work_that_they_make() {
    let is_short = |text: &str| {
        let short = decode_short_document(text.as_bytes());
        if let Some(short) = &short {
            let whole = decode_document(text.as_bytes());
            assert_eq!(format!("{short:?}"), format!("{whole:?}"), "{text:.99}");
        }
        short.is_some()
    };
    let long = |text: &str| format!("{text}{}", " ".repeat(SHORT_BYTES));
    for text in ["a: b", "verbs: ['*']", "run: a && b", "a: [", r#"{"a":1,"a":2}"#] {
        assert!(is_short(text), "{text}");
    }
    // As JSON, whatever its texts say.
    for text in [r#"{"a":"&x *x <<"}"#, "{\"a\":1.5}", &"{\"a\":".repeat(300)] {
        assert!(is_short(&long(text)), "{text}");
    }
    for text in ["a: b\n", "{a: b}", r#"{"a":1,"a":2}"#, "{"] {
        assert!(!is_short(&long(text)), "{text}");
    }
    for text in ["u: &a 1\nv: *a", "{u: &a 1, v: *a}", "w: {<<: {a: b}}"] {
        assert!(!is_short(text), "{text}");
    }
}

#[test]
fn yaml_first_document_only_is_read() {
    check("a: 1\n---\nb: [\n", r#"{"a":1}"#);
    check("# c\n%YAML 1.1\n---\na: 1\n...\nb\n", r#"{"a":1}"#);
    check("a: |\n  ---\n  x\n", r#"{"a":"---\nx\n"}"#);
    check("--- {a: 1}\n", r#"{"a":1}"#);
    check("a: ---b\n", r#"{"a":"---b"}"#);
}

#[test]
fn yaml_tab_errors_match_go() {
    for (yaml, problem) in [
        (
            "a: b\n\tc: d\n",
            "yaml: line 2: found a tab character that violates indentation",
        ),
        (
            "a:\n  b: c\n\td: e\n",
            "yaml: line 3: found a tab character that violates indentation",
        ),
        (
            "a:\n\tb: c\n",
            "yaml: line 2: found character that cannot start any token",
        ),
        (
            "a: {}\n\n\tb: 1",
            "yaml: line 3: found character that cannot start any token",
        ),
    ] {
        let refused = yaml_to_json(yaml.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(refused, Err(problem.to_owned()), "{yaml:?}");
    }
}

#[test]
fn bombs_are_refused() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for level in 1..12 {
        let refs = vec![format!("*a{}", level - 1); 9].join(",");
        bomb.push_str(&format!("a{level}: &a{level} [{refs}]\n"));
    }
    assert!(yaml_to_json(bomb.as_bytes()).is_err());
    assert!(yaml_to_json("[".repeat(5000).as_bytes()).is_err());
    assert!(yaml_to_json("{a: ".repeat(65).as_bytes()).is_err());
    assert!(yaml_to_json("- ".repeat(65).as_bytes()).is_err());
    assert!(yaml_to_json("- ".repeat(60).as_bytes()).is_ok());
    assert!(yaml_to_json("? ".repeat(200).as_bytes()).is_err());
    assert!(yaml_to_json(&[0xff, 0xfe]).is_err());
}

#[track_caller]
fn check_excessive(bomb: &str) {
    let refused = yaml_to_json(bomb.as_bytes()).map_err(|error| error.to_string());
    let expected = "yaml: document contains excessive aliasing".to_owned();
    assert_eq!(refused, Err(expected), "{} bytes", bomb.len());
    assert_eq!(duplicate_key(bomb.as_bytes()), None);
}

/// Anchors that each merge the one before several times over.
fn merge_bomb(first: &str, levels: usize, width: usize) -> String {
    let mut bomb = format!("a0: &a0 {first}\n");
    for level in 1..=levels {
        let refs = vec![format!("*a{}", level - 1); width].join(",");
        bomb.push_str(&format!("a{level}: &a{level} {{<<: [{refs}]}}\n"));
    }
    bomb
}

#[test]
fn merges_within_merges_are_refused_by_the_work_they_make() {
    let wide: Vec<String> = (0..20).map(|number| format!("x{number}: y")).collect();
    let wide = format!("{{{}}}", wide.join(","));
    for (first, levels, width) in [
        ("{x: y}", 12, 2),
        (wide.as_str(), 13, 2),
        ("{x: y}", 7, 4),
        (wide.as_str(), 4, 9),
    ] {
        check_excessive(&merge_bomb(first, levels, width));
    }
    // One merge more than a document may have, and as many as it may.
    let merges = |count: usize| format!("u: &a {{p: 1}}\nw:\n{}", "- {<<: *a}\n".repeat(count));
    check_excessive(&merges(257));
    assert!(yaml_to_json(merges(90).as_bytes()).is_ok());
}

#[test]
fn merged_maps_are_read_anew_on_every_level_so_they_are_small() {
    let nested = |items: usize| {
        let list = "x,".repeat(items);
        format!("{}{{y: [{list}]}}{}", "{<<: ".repeat(20), "}".repeat(20))
    };
    check_excessive(&nested(5_000));
    assert!(yaml_to_json(nested(2_000).as_bytes()).is_ok());
    let deep = "{<<: ".repeat(33) + &"}".repeat(33);
    assert!(yaml_to_json(deep.as_bytes()).is_err());
    // Without a merge a document may be larger, whatever its texts say.
    let list = "x,".repeat(100_000);
    assert!(yaml_to_json(format!("a: '<<'\nb: [{list}]").as_bytes()).is_ok());
}

#[test]
fn aliases_repeat_events_in_proportion_to_the_document() {
    let aliases = |count: usize| format!("a: &a [{}]\nb: [{}]", "x,".repeat(500), "*a,".repeat(count));
    check_excessive(&aliases(30));
    assert!(yaml_to_json(aliases(10).as_bytes()).is_ok());
}

#[test]
fn keys_that_are_maps_or_lists_are_refused_where_they_begin() {
    for yaml in ["? {a: b}\n: c", "? [a]\n: c", "? {? {? [a] : b} : c}\n: d"] {
        let refused = yaml_to_json(yaml.as_bytes()).map_err(|error| error.to_string());
        let words = refused.unwrap_err();
        assert!(words.contains("a map or list cannot be a key"), "{words}");
    }
}
