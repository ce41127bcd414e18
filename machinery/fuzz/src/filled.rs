//! Objects with one list as long as it may be.

/// Bytes of a filled object: a sixth of what the API takes, so that tests are fast.
const LENGTH: usize = 256 << 10;

/// The text with as many items in the place of its `@` as make it 256 KiB long, separated by commas. A `#` in an item is its
/// number, in base 36.
pub fn filled(text: &str, item: &str) -> String {
    let (before, after) = text.split_once('@').expect("a text with a place for items");
    let mut filled = before.to_owned();
    let mut number = 0;
    while filled.len() < LENGTH {
        if number > 0 {
            filled.push(',');
        }
        filled.push_str(&item.replace('#', &base36(number)));
        number += 1;
    }
    filled.push_str(after);
    filled
}

fn base36(mut number: u32) -> String {
    let mut digits = String::new();
    loop {
        digits.extend(char::from_digit(number % 36, 36));
        number /= 36;
        if number == 0 {
            return digits;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filled_text_has_items_of_their_own() {
        let text = filled("[@]", "\"#\"");
        assert!(text.len() >= LENGTH && text.len() < LENGTH + 10);
        let items: Vec<&str> = text.trim_matches(['[', ']']).split(',').collect();
        assert_eq!(items[..2], ["\"0\"", "\"1\""]);
        let set: std::collections::HashSet<&&str> = items.iter().collect();
        assert_eq!(set.len(), items.len());
    }
}
