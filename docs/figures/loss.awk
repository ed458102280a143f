# Draws what docs/figures/measure-loss has measured: samples per second over time, while a node is
# killed and another process takes its place.
# usage: awk -f loss.awk loss.tsv

function line(x1, y1, x2, y2, style) {
    printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style
}

function text(x, y, anchor, size, colour, what) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">%s</text>\n", \
        x, y, anchor, size, colour, what
}

function x_of(seconds) { return left + seconds / last * (right - left) }

function y_of(rate) { return bottom - rate / ceiling * (bottom - top) }

function draw_axes(    tick, step) {
    step = ceiling > 5e5 ? 2e5 : ceiling > 2e5 ? 1e5 : 5e4
    for (tick = 0; tick <= ceiling; tick += step) {
        line(left, y_of(tick), right, y_of(tick), tick == 0 ? "stroke=\"#999999\"" : "stroke=\"#e4e4e4\"")
        text(left - 8, y_of(tick) + 4, "end", 11, "#777777", tick == 0 ? "0" : tick / 1e3 " k")
    }
    for (tick = 0; tick <= last; tick++) {
        line(x_of(tick), bottom, x_of(tick), bottom + 4, "stroke=\"#999999\"")
        text(x_of(tick), bottom + 17, "middle", 11, "#777777", tick)
    }
    text(right, bottom + 32, "end", 11, "#777777", "seconds")
}

# The name on the side where there is room.
function draw_event(name, is_before, what) {
    if (!(name in at))
        return
    line(x_of(at[name]), top - 14, x_of(at[name]), bottom, "stroke=\"#c7762f\" stroke-dasharray=\"4 3\"")
    text(x_of(at[name]) + (is_before ? -5 : 5), top - 6, is_before ? "end" : "start", 11, "#c7762f", what)
}

function draw_rates(    i) {
    printf "<polyline fill=\"none\" stroke=\"#2f74b5\" stroke-width=\"1.5\" stroke-linejoin=\"round\" points=\""
    for (i = 1; i <= n; i++)
        printf "%.1f,%.1f ", x_of(seconds[i] + bin / 2), y_of(rate[i])
    print "\"/>"
}

BEGIN { FS = "\t" }

FNR == 1 { next }

$1 == "rate" {
    seconds[++n] = $2
    rate[n] = $3
    if ($3 > most)
        most = $3
    next
}

{ at[$1] = $2 }

END {
    width = 900
    height = 300
    left = 56; right = 880; top = 66; bottom = 250
    bin = seconds[2] - seconds[1]
    last = seconds[n] + bin
    ceiling = most * 1.08
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\"", width, height
    printf " viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n", width, height
    print "<title>Samples per second of training on four nodes, of which one is killed and replaced</title>"
    printf "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", width, height
    printf "<text x=\"12\" y=\"24\" font-size=\"14\" fill=\"#222222\">Samples per second, all workers together"
    printf "<tspan font-size=\"11\" fill=\"#777777\" dx=\"10\">in each %.0f ms; four nodes, one replica, bsp</tspan></text>\n", bin * 1e3
    draw_axes()
    draw_rates()
    draw_event("killed", 1, "node 3 is killed")
    draw_event("copied", 0, "each part has its replica again")
    draw_event("started", 1, "another process is started")
    draw_event("joined", 0, "it is node 3 now")
    print "</svg>"
}
