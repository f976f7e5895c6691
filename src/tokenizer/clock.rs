//! The date of today, as chat templates write it.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// The present time in UTC, formatted as Python's `strftime` does.
pub(super) fn strftime_now(format: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    strftime(format, now.map_or(0, |past| past.as_secs()))
}

/// `seconds` after the beginning of 1970, in UTC. Directives that chat templates do not use stay as
/// they are.
fn strftime(format: &str, seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day, of_year) = civil(days);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    let month_name = MONTHS.get(month as usize - 1).copied().unwrap_or("");
    let day_name = DAYS.get((days % 7) as usize).copied().unwrap_or("");
    let short = |name: &'static str| name.get(..3).unwrap_or(name).to_owned();
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let directive = letters.next();
        let (unpadded, directive) = match directive {
            Some('-') => (true, letters.next()),
            other => (false, other),
        };
        let two = |n: u64| {
            if unpadded {
                n.to_string()
            } else {
                format!("{n:02}")
            }
        };
        text += &match directive {
            Some('Y') => year.to_string(),
            Some('y') => two(year % 100),
            Some('m') => two(month),
            Some('B') => month_name.to_owned(),
            Some('b' | 'h') => short(month_name),
            Some('d') => two(day),
            Some('e') => format!("{day:2}"),
            Some('j') if unpadded => of_year.to_string(),
            Some('j') => format!("{of_year:03}"),
            Some('A') => day_name.to_owned(),
            Some('a') => short(day_name),
            Some('H') => two(hour),
            Some('I') => two((hour + 11) % 12 + 1),
            Some('M') => two(minute),
            Some('S') => two(second),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('Z') => "UTC".to_owned(),
            Some('%') => "%".to_owned(),
            Some(other) => format!("%{other}"),
            None => "%".to_owned(),
        };
    }
    text
}

/// Year, month from 1, day from 1 and day of the year from 1 of a day after 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let of_year = days + 1;
    let mut month = 1;
    for length in [
        31,
        28 + u64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1, of_year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_python() {
        // From datetime.fromtimestamp(n, UTC).strftime(..).
        for (seconds, format, expected) in [
            (0, "%d %b %Y", "01 Jan 1970"),
            (
                951_782_400,
                "%A, %d %B %Y, day %j",
                "Tuesday, 29 February 2000, day 060",
            ),
            (
                1_767_225_599,
                "%Y-%m-%d %H:%M:%S %p",
                "2025-12-31 23:59:59 PM",
            ),
            (
                1_709_164_800,
                "%-d/%-m/%y %I%p %a %F %%",
                "29/2/24 12AM Thu 2024-02-29 %",
            ),
        ] {
            assert_eq!(strftime(format, seconds), expected);
        }
    }
}
