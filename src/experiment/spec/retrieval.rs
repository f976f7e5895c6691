//! How passages are found and told.

choice! {
    /// How passages of a corpus are found.
    Retrieval {
        /// By their words: BM25.
        "lexical" => Lexical,
        /// By their meaning, with the encoder of a folder, as `dense("models/e5-base-v2")`.
        "dense" => Dense(encoder: String),
        /// By both, fused by rank.
        "hybrid" => Hybrid(encoder: String),
        /// By a server with `/retrieve` and `/access` (Search-R1's, ASearcher's, `palimpsest serve`), as
        /// `served(url: "http://127.0.0.1:8000")`. Then no corpus is needed here.
        "served" => Served(server: RetrieverSettings),
    }
}

choice! {
    /// How the passages of a search are told to the policy.
    ResultShape: Copy Eq {
        /// verl's tool: `{"result": "Doc 1 (Title: T)\\nBODY"}`.
        "verl" => Verl,
        /// Search-R1: `Doc 1(Title: T) BODY`, a line each.
        "search_r1" => SearchR1,
        /// ASearcher: `[Doc 1](url):` and the passage, at most 5000 characters.
        "asearcher" => Asearcher,
    }
}

choice! {
    /// How the vectors nearest to a query are found.
    DenseKind: Copy Eq {
        /// By comparing all: exact, and fast enough for some hundred thousand passages.
        "exact" => Exact,
        /// By a graph of near neighbours (HNSW): for large corpora; it misses few.
        "hnsw" => Hnsw,
    }
}

settings! {
    /// A retriever that is a server. `rollout.limits.tool_seconds` bounds all tries of a call, and the waits between them, together.
    RetrieverSettings {
        /// Its address, as `http://127.0.0.1:8000`; a `/retrieve` at the end is left off.
        url: String = String::new();
        /// Tries of a request when the connection fails or breaks off, a try takes too long, or the server answers 429, 500, 502, 503 or 504.
        tries: u32 = 5, unit "tries",
            where from_to(1.0, 20.0) or "no request could be sent, or a dead server would hold every trajectory for minutes";
        /// Wait before the second try; it doubles with each further one, and is no shorter than the server asks for (`Retry-After`).
        retry_seconds: f32 = 0.5, unit "seconds",
            where from_to(0.0, 60.0) or "a dead server would hold every trajectory for minutes";
        /// Time a try may take, its whole answer included.
        timeout_seconds: f32 = 30.0, unit "seconds",
            where above(0.0) or "every request would time out";
        /// Most requests a second, over all trajectories; 0: no limit.
        rate: u32 = 120, unit "requests per second";
        /// Longest answer.
        answer_bytes: u64 = 8388608, unit "bytes",
            where at_least(1024.0) or "no passage would fit";
    }
}
