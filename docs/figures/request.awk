# Draws the way of a request, to a server of its own node and to one of another.

function box(x, y, w, h, fill, head, note) {
    printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"%s\" " \
           "stroke=\"#555555\"/>\n", x, y, w, h, fill
    text(x + w / 2, y + (note == "" ? h / 2 + 5 : h / 2 - 2), "middle", 13, "#222222", head)
    if (note != "")
        text(x + w / 2, y + h / 2 + 14, "middle", 11, "#555555", note)
}

function text(x, y, anchor, size, colour, what) {
    printf "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">%s</text>\n", \
        x, y, anchor, size, colour, what
}

function frame(x, y, w, h, what) {
    printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\" fill=\"none\" " \
           "stroke=\"#999999\" stroke-dasharray=\"5 4\"/>\n", x, y, w, h
    text(x + 12, y + 20, "start", 12, "#777777", what)
}

# Right, left, down or up, with the head at the second point.
function arrow(x1, y1, x2, y2, colour,    dx, dy) {
    dx = x2 > x1 ? 1 : x2 < x1 ? -1 : 0
    dy = y2 > y1 ? 1 : y2 < y1 ? -1 : 0
    printf "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\"/>\n", \
        x1, y1, x2 - 7 * dx, y2 - 7 * dy, colour
    printf "<polygon points=\"%d,%d %d,%d %d,%d\" fill=\"%s\"/>\n", x2, y2, \
        x2 - 9 * dx - 5 * dy, y2 - 9 * dy - 5 * dx, x2 - 9 * dx + 5 * dy, y2 - 9 * dy + 5 * dx, \
        colour
}

BEGIN {
    worker = "#dbe7f5"; io = "#f3e3cf"; server = "#dcefdf"
    asks = "#3b73b9"; answers = "#4d9a5b"
    width = 800; height = 420
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" " \
           "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n", width, height, width, height
    print "<title>The way of a request</title>"
    printf "<rect x=\"0\" y=\"0\" width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", width, height

    frame(10, 10, 500, 375, "the worker's node")
    frame(560, 10, 230, 375, "another node")

    box(30, 45, 190, 44, worker, "task function", "rubato_kv_table_get()")
    box(30, 125, 190, 44, worker, "table handle", "checks keys, one slice a server")
    box(30, 205, 190, 44, worker, "post office", "here, or which node?")
    box(30, 296, 190, 40, worker, "send queue", "one packet a node and batch")
    box(30, 344, 190, 34, io, "I/O thread", "")

    box(310, 100, 180, 44, server, "server's actor", "runs on whose turn it is")
    box(310, 175, 180, 44, server, "model", "answers now, or keeps it")
    box(310, 250, 180, 44, server, "storage, update rule", "gathers rows, applies deltas")

    box(585, 296, 85, 40, io, "I/O thread", "checks all")
    box(680, 296, 85, 40, server, "send queue", "")
    box(585, 205, 180, 44, server, "server's actor", "")
    box(585, 125, 180, 44, server, "model", "")
    box(585, 45, 180, 44, server, "storage, update rule", "")

    arrow(125, 89, 125, 125, asks)
    arrow(125, 169, 125, 205, asks)
    printf "<path d=\"M 220 227 L 265 227 L 265 128 L 300 128\" fill=\"none\" stroke=\"%s\" " \
           "stroke-width=\"2\"/>\n", asks
    arrow(290, 128, 310, 128, asks)
    text(243, 243, "middle", 11, asks, "local")
    arrow(400, 144, 400, 175, asks)
    arrow(400, 219, 400, 250, asks)
    arrow(125, 249, 125, 296, asks)
    text(133, 277, "start", 11, asks, "remote")
    arrow(220, 316, 585, 316, asks)
    printf "<path d=\"M 722 336 L 722 361 L 240 361\" fill=\"none\" stroke=\"%s\" " \
           "stroke-width=\"2\"/>\n", answers
    arrow(240, 361, 220, 361, answers)
    text(535, 308, "middle", 11, "#777777", "TCP")
    text(535, 353, "middle", 11, "#777777", "TCP")
    arrow(627, 296, 627, 249, asks)
    arrow(722, 249, 722, 296, answers)
    arrow(675, 205, 675, 169, asks)
    arrow(675, 125, 675, 89, asks)

    printf "<path d=\"M 310 113 L 280 113 L 280 67 L 240 67\" fill=\"none\" stroke=\"%s\" " \
           "stroke-width=\"2\"/>\n", answers
    arrow(250, 67, 220, 67, answers)
    text(292, 62, "start", 11, answers, "rows land in the caller's buffer")
    printf "<path d=\"M 30 361 L 20 361 L 20 67 L 21 67\" fill=\"none\" stroke=\"%s\" " \
           "stroke-width=\"2\"/>\n", answers
    arrow(20, 67, 30, 67, answers)

    printf "<rect x=\"30\" y=\"396\" width=\"14\" height=\"14\" fill=\"%s\" stroke=\"#555555\"/>\n", \
        worker
    text(50, 408, "start", 11, "#555555", "on the worker's thread")
    printf "<rect x=\"200\" y=\"396\" width=\"14\" height=\"14\" fill=\"%s\" stroke=\"#555555\"/>\n", io
    text(220, 408, "start", 11, "#555555", "on the I/O thread")
    printf "<rect x=\"340\" y=\"396\" width=\"14\" height=\"14\" fill=\"%s\" stroke=\"#555555\"/>\n", \
        server
    text(360, 408, "start", 11, "#555555", \
         "as the server's owner: its own thread, or a worker that finds it idle")
    print "</svg>"
}
