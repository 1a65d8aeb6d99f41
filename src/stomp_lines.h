/* The hot loop of the scanner. No include guard: stomp_scan.c includes it once for every kind of machine, with
   STOMP_SCAN_HEAD, STOMP_RARE and STOMP_MASKS defined, so that the compiler can use what that machine has.

   A window of 32 octets is laid on the start of each line; most lines end inside it. The quick ways take lines on which
   the full rules would find nothing; every other line goes to take_any_line. Without the quick ways only the speed
   would change. */

/* The rare octets of a header line, given as bits from `at` on: 1 if they are escapes and data as the rules allow them, 0
   if the full rules must look. A letter that ends an escape is neither colon nor line end, so an escape that is whole
   lies inside one field. `window` is the end of what the bits cover. */
static inline int STOMP_RARE(struct stomp_scan *s, const uint8_t *data, size_t at, uint32_t bits, size_t window, size_t len)
{
    for (; bits; bits &= bits - 1) {
        size_t i = at + stomp_low_bit(bits);
        if (data[i] == '\\' && s->level) {
            uint8_t letter = i + 1 < len ? data[i + 1] : 0;
            s->marks |= STOMP_ESCAPED;
            if (letter == '\\') {
                if (i + 1 == window)
                    return 0;
                bits &= bits - 1; /* the second of a pair */
            } else if (letter != 'c' && letter != 'n' && (letter != 'r' || s->level != 2)) {
                return 0;
            }
        } else if (data[i] == '\r' || data[i] == '\\') {
            s->marks |= STOMP_ODD;
        } else {
            return 0;
        }
    }
    return 1;
}

static int STOMP_SCAN_HEAD(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t len)
{
    size_t pos, line, colon, end, window;
    int rare, verdict;
    s->skip = 0;
    if (s->phase == GAP) {
        if (len > 1 && data[0] == '\n' && data[1] > ' ' && !rules->report_beats) { /* the gap that most brokers leave */
            s->skip = 1;
            data++;
            len--;
        } else if (!len || data[0] <= ' ') {
            int outcome = scan_gap(s, rules, data, len);
            if (outcome >= 0)
                return outcome;
            data += s->skip;
            len -= s->skip;
        }
        if (begin_frame(s, rules))
            return STOMP_BAD;
        pos = line = 0;
        colon = NONE;
        rare = 0;
    } else {
        pos = s->pos;
        line = s->line;
        colon = s->colon;
        rare = s->rare;
    }
    struct stomp_line *to = s->lines + s->count, *room = lines_room(s, rules);
    const int quick = !(rules->flags & STOMP_IRREGULAR) && rules->max_header_line >= 32;
    struct stomp_masks m;
    uint32_t upto, colons, more_colons = 0;
    if (!quick || len < 32 || pos)
        goto any_window;
    STOMP_MASKS(&m, data);
    upto = m.lf ^ (m.lf - 1);
    if (!m.lf || m.rare & upto || !known_command(s, rules, data, stomp_low_bit(m.lf)))
        goto any_window;
    line = stomp_low_bit(m.lf) + 1;
header_line:
    /* Header lines that begin and end in one window, without anything rare: name, colon, value. */
    while (line + 32 <= len) {
        STOMP_MASKS(&m, data + line);
        upto = m.lf ^ (m.lf - 1); /* the bits up to the first line end; all where there is none */
        colons = m.colon & upto;
        if (STOMP_UNLIKELY(m.rare & upto))
            goto fresh_line_seen;
        if (STOMP_UNLIKELY(!m.lf)) {
            if (!colons || colons & 1)
                goto fresh_line_seen;
            for (pos = line + 32; !m.lf; pos += 32) { /* a long line of which nothing is rare */
                if (pos + 32 > len)
                    goto long_line;
                STOMP_MASKS(&m, data + pos);
                upto = m.lf ^ (m.lf - 1);
                if (m.rare & upto)
                    goto long_line;
                more_colons |= m.colon & upto;
            }
            end = pos - 32 + stomp_low_bit(m.lf);
            if (end - line > rules->max_header_line || to == room)
                goto long_line;
        } else {
            end = line + stomp_low_bit(m.lf);
            if (STOMP_UNLIKELY(!colons || colons & 1)) {
                verdict = LINE_BLANK;
                pos = end;
                if (end == line)
                    goto done;
                goto fresh_line_seen;
            }
            if (STOMP_UNLIKELY(to == room))
                goto fresh_line_seen;
        }
        colon = line + stomp_low_bit(colons);
        more_colons |= colons & (colons - 1);
        if (STOMP_UNLIKELY(colon - line == 14) && !(s->marks & STOMP_HAS_LENGTH) && is_content_length(data + line, 0)
            && (verdict = take_length(s, rules, data, colon + 1, end)))
            goto done;
        to->colon = (uint32_t)colon;
        to->end = (uint32_t)end;
        to++;
        line = end + 1;
        continue;
    long_line: /* read it again, by parts */
        STOMP_MASKS(&m, data + line);
        goto fresh_line_seen;
    }
    for (;;) {
        pos = line;
        colon = NONE;
        rare = 0;
    any_window:
        if (pos == len)
            break;
        window = len - pos < 32 ? len : pos + 32;
        if (window - pos == 32)
            STOMP_MASKS(&m, data + pos);
        else
            STOMP_TAIL(&m, data + pos, window - pos);
        goto seen;
    fresh_line_seen:
        pos = line;
        colon = NONE;
        rare = 0;
        window = pos + 32;
    seen:
        upto = m.lf ^ (m.lf - 1);
        colons = m.colon & upto;
        m.rare &= upto;
        if (colons && colon == NONE) {
            colon = pos + stomp_low_bit(colons);
            colons &= colons - 1;
        }
        if (!m.lf) {
            more_colons |= s->phase == HEADERS ? colons : 0;
            if (m.rare && (rare || s->phase != HEADERS || data[window - 1] == '\r' || !STOMP_RARE(s, data, pos, m.rare, window, len))) {
                const uint8_t *nul = memchr(data + pos, 0, window - pos);
                rare = 1;
                if (nul) {
                    s->line = line;
                    s->count = (uint32_t)(to - s->lines);
                    nul_in_line(s, rules, (size_t)(nul - data));
                    return STOMP_BAD;
                }
            }
            pos = window;
            goto any_window;
        }
        size_t lf = pos + stomp_low_bit(m.lf);
        end = lf;
        if (m.rare && data[lf - 1] == '\r' && rules->flags & STOMP_CRLF) {
            m.rare ^= (uint32_t)1 << (lf - 1 - pos); /* the CR of the line end: in this window, for something rare is */
            end--;
            s->marks |= STOMP_CR_ENDS;
        }
        if (m.rare && (rare || s->phase != HEADERS || !STOMP_RARE(s, data, pos, m.rare, lf, len)))
            rare = 1;
        verdict = LINE_TAKEN;
        if (s->phase == COMMAND) {
            if (!rare && known_command(s, rules, data, end))
                goto taken;
        } else if (more_colons |= colons, quick && !rare && end - line <= rules->max_header_line) {
            if (end == line) {
                verdict = LINE_BLANK;
                pos = lf;
                goto done;
            }
            if (colon - line - 1 < end - line && to != room) {
                if (colon - line == 14 && !(s->marks & STOMP_HAS_LENGTH) && is_content_length(data + line, 0)
                    && (verdict = take_length(s, rules, data, colon + 1, end)))
                    goto done;
                to->colon = (uint32_t)colon;
                to->end = (uint32_t)end;
                to++;
                goto taken;
            }
        }
        s->line = line;
        s->colon = colon;
        s->rare = rare;
        s->count = (uint32_t)(to - s->lines);
        verdict = take_any_line(s, rules, data, lf);
        to = s->lines + s->count;
        room = lines_room(s, rules);
        pos = lf;
        if (verdict)
            goto done;
    taken:
        line = lf + 1;
        if (quick)
            goto header_line;
    }
    s->marks |= more_colons ? STOMP_ODD : 0;
    s->pos = len;
    s->line = line;
    s->colon = colon;
    s->rare = rare;
    s->count = (uint32_t)(to - s->lines);
    return check_unfinished(s, rules, data, len) ? STOMP_BAD : STOMP_MORE;
done:
    s->marks |= more_colons ? STOMP_ODD : 0;
    s->count = (uint32_t)(to - s->lines);
    s->head = pos + 1;
    s->phase = GAP;
    return verdict == LINE_BLANK ? STOMP_HEAD : STOMP_BAD;
}
