#!/usr/bin/env python3
"""Remake assets/lookup/facts.json from the Python packages countryinfo and mendeleev.

    pip install countryinfo==1.0.1 mendeleev==1.3.0
    python3 scripts/make_facts.py            rewrite the file
    python3 scripts/make_facts.py --check    write nothing; exit code 1 if the file would change

Facts are taken as the packages give them, errors included, then made plain: ASCII only (a small
tokenizer), the first entry of a list, and none of the characters that separate facts in notes.
An entity keeps the split it has in the file; an entity that is new goes to "train". Only the data
files of the packages are read, none of their code is run.
"""

import argparse
import importlib.util
import json
import re
import sqlite3
import sys
import unicodedata
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "assets" / "lookup" / "facts.json"
SOURCE = "countryinfo 1.0.1 and mendeleev 1.3.0"
LONGEST_COUNTRY_NAME = 21  # characters
FEWEST_COUNTRY_FACTS = 4
LANGUAGES = {
    "af": "Afrikaans", "am": "Amharic", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian",
    "bg": "Bulgarian", "bn": "Bengali", "bs": "Bosnian", "ca": "Catalan", "cs": "Czech", "da": "Danish",
    "de": "German", "dz": "Dzongkha", "el": "Greek", "en": "English", "es": "Spanish", "et": "Estonian",
    "fa": "Persian", "fi": "Finnish", "fo": "Faroese", "fr": "French", "he": "Hebrew", "hi": "Hindi",
    "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "is": "Icelandic",
    "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "kl": "Greenlandic", "km": "Khmer",
    "ko": "Korean", "ky": "Kyrgyz", "lo": "Lao", "lt": "Lithuanian", "lv": "Latvian", "mg": "Malagasy",
    "mk": "Macedonian", "mn": "Mongolian", "ms": "Malay", "mt": "Maltese", "my": "Burmese", "ne": "Nepali",
    "nl": "Dutch", "no": "Norwegian", "ny": "Chichewa", "pl": "Polish", "ps": "Pashto", "pt": "Portuguese",
    "ro": "Romanian", "ru": "Russian", "rw": "Kinyarwanda", "si": "Sinhala", "sk": "Slovak", "sl": "Slovene",
    "sm": "Samoan", "so": "Somali", "sq": "Albanian", "sr": "Serbian", "st": "Sotho", "sv": "Swedish",
    "sw": "Swahili", "tg": "Tajik", "th": "Thai", "ti": "Tigrinya", "tk": "Turkmen", "to": "Tongan",
    "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese", "zh": "Chinese",
}


def plain(value):
    """The first entry of a list, as ASCII, without the characters that separate facts."""
    if isinstance(value, list):
        value = value[0] if value else ""
    text = unicodedata.normalize("NFKD", str(value)).encode("ascii", "ignore").decode()
    return re.sub(r"\s+", " ", re.sub(r'[;=?<>"]', "", text)).strip().rstrip(".").strip()


def package_folder(name):
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        sys.exit(f"the Python package {name!r} is not installed; see the head of {Path(__file__).name}")
    return Path(spec.origin).parent


def countries():
    """Name -> facts of every country that has a short name and enough of them."""
    folder = package_folder("countryinfo") / "data"
    entries = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    by_code = {entry.get("ISO", {}).get("alpha3"): entry["name"] for entry in entries}
    found = {}
    for entry in entries:
        name = plain(re.sub(r"\(.*?\)", "", plain(entry["name"])).split(",")[0])
        facts = {}

        def first(relation, field):
            if entry.get(field) and entry[field][0]:
                facts[relation] = plain(entry[field])

        if entry.get("capital"):
            facts["capital"] = plain(entry["capital"])
        first("currency", "currencies")
        if entry.get("languages") and entry["languages"][0] in LANGUAGES:
            facts["language"] = LANGUAGES[entry["languages"][0]]
        if entry.get("subregion"):
            facts["region"] = plain(entry["subregion"])
        neighbours = [by_code[code] for code in entry.get("borders", []) if code in by_code]
        if neighbours:
            facts["neighbour"] = plain(neighbours[0]).split(",")[0]
        if entry.get("demonym"):
            facts["demonym"] = plain(entry["demonym"])
        first("prefix", "callingCodes")
        first("province", "provinces")
        if len(facts) >= FEWEST_COUNTRY_FACTS and len(name) <= LONGEST_COUNTRY_NAME:
            found[name] = facts
    return found


def elements():
    """Name -> facts of every chemical element."""
    database = sqlite3.connect(package_folder("mendeleev") / "elements.db")
    series = dict(database.execute("select id, name from series"))
    rows = database.execute(
        "select symbol, name, discoverers, discovery_year, discovery_location, series_id, atomic_number from elements"
    )
    found = {}
    for symbol, name, people, year, place, series_id, number in rows:
        facts = {"symbol": symbol, "number": str(number)}
        if people and "ancient" not in people.lower():
            facts["discoverer"] = plain(people.split(",")[0].split(" and ")[0]).split(" ")[-1]
        if year:
            facts["year"] = str(year)
        if place:
            facts["origin"] = plain(place.split("/")[0])
        if series_id in series:
            facts["series"] = plain(series[series_id]).lower()
        found[name.lower()] = facts
    return found


def render(entities):
    lines = ",\n".join("    " + json.dumps(entity) for entity in entities)
    return f'{{\n  "source": {json.dumps(SOURCE)},\n  "licence": "MIT",\n  "entities": [\n{lines}\n  ]\n}}\n'


def main():
    parser = argparse.ArgumentParser(description="Remake assets/lookup/facts.json.")
    parser.add_argument("--check", action="store_true", help="write nothing, say whether the file would change")
    check = parser.parse_args().check
    before = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    split = {entity["name"]: entity["split"] for entity in json.loads(before)["entities"]} if before else {}
    found = [(name, "country", facts) for name, facts in countries().items()]
    found += [(name, "element", facts) for name, facts in elements().items()]
    entities = [
        {"name": name, "kind": kind, "split": split.get(name, "train"), "facts": facts}
        for name, kind, facts in sorted(found)
    ]
    after = render(entities)
    if check:
        sys.exit(0 if after == before else f"{FILE.name} would change")
    FILE.write_text(after, encoding="utf-8")
    print(f"{len(entities)} entities, {sum(len(entity['facts']) for entity in entities)} facts")


if __name__ == "__main__":
    main()
